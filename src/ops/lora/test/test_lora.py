"""heddle.AdapterTable, weights by address, plans and pairs, which the calls of lora_calls.py have not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from frameworks import FLOATS, INTEGERS, Framework, assert_close

import heddle
from heddle import LoraBatch, ops


def test_an_adapter_table_with_ranks_of_its_own(
    framework: Framework, rng: np.random.Generator
) -> None:
    widths, ranks = [6, 10], [3, 8]
    a = heddle.AdapterTable(2, [12, 12], 8, dtype="bf16")
    b = heddle.AdapterTable(2, widths, 8, dtype="bf16", layout="rank_minor")
    assert (a.num_slots, a.max_rank, b.features) == (2, 8, widths)
    plain: dict[tuple[int, int], tuple[Any, Any]] = {}
    for slot, rank in enumerate(ranks):
        for s, width in enumerate(widths):
            half_a = framework.array(rng.standard_normal((rank, 12)), "bf16")
            half_b = framework.array(rng.standard_normal((width, rank)), "bf16")
            a.set(slot, s, half_a)
            b.set(slot, s, half_b, scale=slot + 0.5)
            plain[slot, s] = (framework.numpy(half_a), framework.numpy(half_b))
    slots = np.array([1, -1, 0, 1])
    batch = LoraBatch(slot_ids=framework.array(slots, "i32"))
    x = framework.array(rng.standard_normal((4, 12)), "f32")
    fused = framework.array(rng.standard_normal((4, 16)), "f32")
    want = framework.numpy(fused).copy()
    for t, slot in enumerate(slots):
        for s, columns in enumerate((slice(0, 6), slice(6, 16))):
            if slot >= 0:
                half_a, half_b = plain[slot, s]
                want[t, columns] += (slot + 0.5) * (half_b @ (half_a @ framework.numpy(x)[t]))
    by_halves = framework.array(framework.numpy(fused), "f32")
    ops.lora_apply([fused[:, :6], fused[:, 6:]], x, a, b, batch)
    assert_close(framework.numpy(fused), want, "f32", terms=40)

    for s, offset in enumerate((0, 6)):
        h = framework.array(np.zeros((4, 8)), "f32")
        ops.lora_shrink(h, x, a, batch, slice=s)
        ops.lora_expand(by_halves, h, b, batch, slice=s, slice_offset=offset)
    assert (framework.numpy(by_halves) == framework.numpy(fused)).all()

    a.clear(1)
    before = framework.numpy(fused).copy()
    ops.lora_apply([fused[:, :6], fused[:, 6:]], x, a, b, batch)
    changed = (framework.numpy(fused) != before).any(1)
    assert changed.tolist() == [False, False, True, False]


def test_a_table_refuses_what_does_not_fit(framework: Framework) -> None:
    table = heddle.AdapterTable(2, [8], 16, dtype="f16", aligned=True)
    table.set(0, 0, framework.array(np.ones((12, 8)), "f16"))
    with pytest.raises(ValueError, match="slot is 2, expected 0 to 1"):
        table.set(2, 0, framework.array(np.ones((4, 8)), "f16"))
    with pytest.raises(ValueError, match="slot is -1, expected 0 to 1"):
        table.clear(-1)
    with pytest.raises(NotImplementedError, match="weight is f32, supported: f16"):
        table.set(0, 0, framework.array(np.ones((4, 8)), "f32"))
    with pytest.raises(ValueError, match="the rank of weight is 6, expected a multiple of 4"):
        table.set(0, 0, framework.array(np.ones((6, 8)), "f16"))


def test_bytes_of_a_plan() -> None:
    assert heddle.lora_plan_bytes(0, 16) == 0
    assert 0 < heddle.lora_plan_bytes(256, 16) < heddle.lora_plan_bytes(257, 16)
    assert heddle.lora_plan_bytes(256, 16) < heddle.lora_plan_bytes(256, 17)


def test_the_cpu_needs_no_plan(framework: Framework, rng: np.random.Generator) -> None:
    x = framework.array(rng.standard_normal((5, 24)), "f32")
    a = framework.array(rng.standard_normal((3, 4, 24)), "f32")
    batch = LoraBatch(slot_ids=framework.array([2, -1, 0, 1, 2], "i32"))
    memory = framework.array(np.full(heddle.lora_plan_bytes(5, 4) + 256, 7), "u8")
    address = memory.data_ptr() if hasattr(memory, "data_ptr") else memory.ctypes.data
    plan = memory[-address % 256 :]
    with pytest.raises(ValueError, match=r"plan.size\(0\) is 8, expected at least lora_plan_bytes"):
        ops.lora_plan(plan[:8], batch, 5, 3, 4)
    with pytest.raises(NotImplementedError, match="lora_plan: cpu needs no plan"):
        ops.lora_plan(plan, batch, 5, 3, 4)
    with_plan, without = (framework.array(np.zeros((5, 4)), "f32") for _ in range(2))
    ops.lora_shrink(with_plan, x, a, batch._replace(plan=plan))
    ops.lora_shrink(without, x, a, batch)
    assert (framework.numpy(with_plan) == framework.numpy(without)).all()


@pytest.mark.parametrize("layout", ["rank_major", "rank_minor"])
def test_weights_by_address(framework: Framework, rng: np.random.Generator, layout: str) -> None:
    layers, rank, width = 3, 4, 10
    shape = (layers, rank, width) if layout == "rank_major" else (layers, width, rank)
    pages = [framework.array(rng.standard_normal(shape), "f16") for _ in range(2)]
    pointers = [p.data_ptr() if hasattr(p, "data_ptr") else p.ctypes.data for p in pages]
    table = framework.array([pointers[0], 0, pointers[1]], "i64")
    plain = np.stack([framework.numpy(p)[2] for p in pages])
    plain = plain if layout == "rank_major" else plain.transpose(0, 2, 1)
    x = framework.array(rng.standard_normal((4, width)), "f16")
    batch = LoraBatch(slot_ids=framework.array([2, 1, 0, -1], "i32"))
    y = framework.array(np.full((4, rank), 9.0), "f32")
    ops.lora_shrink(y, x, table, batch, layout=layout, layer_idx=2)
    want = np.full((4, rank), 9.0)
    want[0], want[2] = plain[1] @ framework.numpy(x)[0], plain[0] @ framework.numpy(x)[2]
    assert_close(framework.numpy(y), want, "f32", terms=width)

    part = framework.array(np.full((4, 2), 9.0), "f32")
    ops.lora_shrink(part, x, table, batch, layout=layout, layer_idx=2, rank=rank, first_rank=1)
    assert (framework.numpy(part) == framework.numpy(y)[:, 1:3]).all()

    h = framework.array(rng.standard_normal((4, rank)), "f32")
    out = framework.array(np.zeros((4, 13)), "f32")
    ops.lora_expand(
        out,
        h,
        table,
        batch,
        layout=layout,
        layer_idx=2,
        weight_dtype="f16",
        slice_offset=2,
        out_features=width,
    )
    want = np.zeros((4, 13))
    want[0, 2:12], want[2, 2:12] = (
        framework.numpy(h)[0] @ plain[1],
        framework.numpy(h)[2] @ plain[0],
    )
    assert_close(framework.numpy(out), want, "f32", terms=rank)


def pairs_site(
    framework: Framework, rng: np.random.Generator, dtype: str
) -> tuple[heddle.AdapterTable, heddle.AdapterTable, Any]:
    """Tables of three adapters of ranks 3, 8 and 5 (12 -> 10), and B A of each with its scale."""
    a = heddle.AdapterTable(3, [12], 8, dtype=dtype)
    b = heddle.AdapterTable(3, [10], 8, dtype=dtype, layout="rank_minor")
    products = []
    for slot, rank in enumerate((3, 8, 5)):
        half_a = framework.array(rng.standard_normal((rank, 12)), dtype)
        half_b = framework.array(rng.standard_normal((10, rank)), dtype)
        a.set(slot, 0, half_a)
        b.set(slot, 0, half_b, scale=slot + 0.5)
        products.append((slot + 0.5) * (framework.numpy(half_b) @ framework.numpy(half_a)))
    return a, b, np.stack(products)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("ids", INTEGERS)
@pytest.mark.parametrize("most", [None, 2])
def test_several_adapters_for_one_token(
    framework: Framework, rng: np.random.Generator, dtype: str, ids: str, most: int | None
) -> None:
    a, b, products = pairs_site(framework, rng, "f16")
    starts = np.array([0, 2, 2, 3, 7, 8, 8])
    slots = np.array([0, 1, 2, 2, -1, 2, 0, 5])
    scales = framework.array(rng.standard_normal(8), "f32")
    row_scale = framework.array(rng.standard_normal(6), "f32")
    x = framework.array(rng.standard_normal((6, 12)), "f32")
    y = framework.array(rng.standard_normal((6, 10)), dtype)
    before = framework.numpy(y).copy()
    want = before.copy()
    for t in range(6):
        for pair in range(starts[t], min(starts[t + 1], starts[t] + (most or 9))):
            if 0 <= slots[pair] < 3:
                delta = products[slots[pair]] @ framework.numpy(x)[t]
                factor = framework.numpy(scales)[pair] * framework.numpy(row_scale)[t]
                want[t] = want[t] + factor * delta
    batch = LoraBatch(
        row_scale=row_scale,
        pair_starts=framework.array(starts, ids),
        pair_slots=framework.array(slots, ids),
        pair_scales=scales,
        max_pairs=most,
    )
    ops.lora_apply([y], x, a, b, batch)
    assert_close(framework.numpy(y), want, dtype, terms=60)
    assert (framework.numpy(y)[[1, 4, 5]] == before[[1, 4, 5]]).all()
