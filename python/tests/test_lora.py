"""heddle.ops.lora_shrink and lora_expand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from frameworks import FLOATS, INTEGERS, Framework, assert_close

from heddle import ops


def shrink_reference(y: Any, x: Any, a: Any, slots: Any, scale: float, accumulate: bool) -> Any:
    """`a` is [slots, rank, in]."""
    y = y.copy()
    for t, slot in enumerate(slots):
        if 0 <= slot < len(a):
            y[t] = scale * (a[slot] @ x[t]) + (y[t] if accumulate else 0)
    return y


def expand_reference(
    y: Any, h: Any, b: Any, slots: Any, offset: int, scale: float, accumulate: bool
) -> Any:
    """`b` is [slots, out, rank]."""
    y = y.copy()
    for t, slot in enumerate(slots):
        if 0 <= slot < len(b):
            part = y[t, offset : offset + b.shape[1]]
            part[:] = scale * (b[slot] @ h[t]) + (part if accumulate else 0)
    return y


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("ids", INTEGERS)
@pytest.mark.parametrize("accumulate", [False, True])
def test_lora_shrink(
    framework: Framework, rng: np.random.Generator, dtype: str, ids: str, accumulate: bool
) -> None:
    tokens, width, rank, num_slots = 17, 100, 9, 3
    x = framework.array(rng.standard_normal((tokens, width)), dtype)
    a = framework.array(rng.standard_normal((num_slots, rank, width)), dtype)
    slots = rng.integers(-2, num_slots + 1, tokens)
    y = framework.array(rng.standard_normal((tokens, rank)), "f32")
    want = shrink_reference(
        framework.numpy(y), framework.numpy(x), framework.numpy(a), slots, 0.5, accumulate
    )
    ops.lora_shrink(y, x, a, slot_ids=framework.array(slots, ids), scale=0.5, accumulate=accumulate)
    assert_close(framework.numpy(y), want, "f32", terms=width)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("layout", ["rank_minor", "rank_major"])
@pytest.mark.parametrize("accumulate", [False, True])
def test_lora_expand(
    framework: Framework, rng: np.random.Generator, dtype: str, layout: str, accumulate: bool
) -> None:
    tokens, rank, width, num_slots, offset = 11, 16, 33, 4, 5
    h = framework.array(rng.standard_normal((tokens, rank)), "f32")
    values = rng.standard_normal((num_slots, width, rank))
    b = framework.array(values if layout == "rank_minor" else values.transpose(0, 2, 1), dtype)
    plain_b = (
        framework.numpy(b) if layout == "rank_minor" else framework.numpy(b).transpose(0, 2, 1)
    )
    slots = rng.integers(-1, num_slots + 1, tokens)
    y = framework.array(rng.standard_normal((tokens, 50)), dtype)
    want = expand_reference(
        framework.numpy(y), framework.numpy(h), plain_b, slots, offset, 2.0, accumulate
    )
    ops.lora_expand(
        y,
        h,
        b,
        slot_ids=framework.array(slots, "i64"),
        slice_offset=offset,
        scale=2.0,
        accumulate=accumulate,
        layout=layout,
    )
    assert_close(framework.numpy(y), want, dtype, terms=rank)


def test_segments_equal_ids(framework: Framework, rng: np.random.Generator) -> None:
    x = framework.array(rng.standard_normal((8, 24)), "f32")
    a = framework.array(rng.standard_normal((3, 4, 24)), "f32")
    by_ids, by_segments = (framework.array(np.full((8, 4), 3.0), "f32") for _ in range(2))
    scale = framework.array(rng.standard_normal(8), "f32")
    ops.lora_shrink(
        by_ids, x, a, slot_ids=framework.array([-1, 2, 2, 0, 0, 0, -1, 1], "i32"), row_scale=scale
    )
    ops.lora_shrink(
        by_segments,
        x,
        a,
        seg_starts=framework.array([7, 1, 3], "i32"),
        seg_ends=framework.array([8, 3, 6], "i64"),
        seg_slots=framework.array([1, 2, 0], "i32"),
        row_scale=scale,
    )
    assert (framework.numpy(by_ids) == framework.numpy(by_segments)).all()
    assert (framework.numpy(by_ids)[[0, 6]] == 3).all()


def test_errors(framework: Framework) -> None:
    def ones(*shape: int) -> Any:
        return framework.array(np.ones(shape), "f32")

    ids = framework.array([0, 0], "i32")
    with pytest.raises(ValueError, match=r"a.size\(2\) is 7, expected in_features = 8"):
        ops.lora_shrink(ones(2, 4), ones(2, 8), ones(1, 4, 7), slot_ids=ids)
    with pytest.raises(ValueError, match='layout is "odd", expected "rank_major" or "rank_minor"'):
        ops.lora_shrink(ones(2, 4), ones(2, 8), ones(1, 4, 8), slot_ids=ids, layout="odd")
    with pytest.raises(TypeError, match="slot_ids is a list, expected an array"):
        ops.lora_shrink(ones(2, 4), ones(2, 8), ones(1, 4, 8), slot_ids=[0, 0])  # type: ignore[arg-type]
