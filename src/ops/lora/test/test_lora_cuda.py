"""LoRA on torch's CUDA tensors: every entry point, CUDA graphs, streams and adapter tables."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from torch_on_gpu import GPU, each_half, seed_of_torch, torch

import heddle
from heddle import LoraBatch, ops
from heddle.compat import punica_kernels
from heddle.compat.lorax import ops as lorax

__all__ = ["seed_of_torch"]

STEP = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-22}
"""Largest relative error of one rounding; for f32 that of the two halves that h enters as."""


def randn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, device=GPU).to(dtype)


def random_ids(tokens: int, slots: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    """Some rows without adapter: -1, and one past the last."""
    return torch.randint(-1, slots + 1, (tokens,), device=GPU).to(dtype)


def deltas(x: torch.Tensor, weights: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """weights[ids[t]] x[t] in float64, zero for rows without adapter; weights [slots, out, in]."""
    result = x.new_zeros((len(x), weights.shape[1]), dtype=torch.float64)
    for slot, weight in enumerate(weights):
        result += (x.double() @ weight.double().T) * (ids == slot)[:, None]
    return result


def assert_close(got: torch.Tensor, want: torch.Tensor, dtype: torch.dtype | None = None) -> None:
    """One rounding of each element, and of sums a part of the largest. NaN never agrees."""
    step = STEP[dtype or got.dtype]
    got = got.double()
    limit = 1.01 * step * want.abs() + 2e-5 * want.abs().max()
    wrong = ~((got - want).abs() <= limit)
    assert not wrong.any(), (
        f"{int(wrong.sum())} of {wrong.numel()} differ, "
        f"first {float(got[wrong][0])} for {float(want[wrong][0])}"
    )


@each_half
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
@pytest.mark.parametrize(("tokens", "rank", "width"), [(1, 16, 512), (33, 6, 100), (300, 64, 1030)])
def test_shrink_and_expand(
    dtype: torch.dtype, index: torch.dtype, tokens: int, rank: int, width: int
) -> None:
    ids = random_ids(tokens, 5, index)
    x, a = randn(tokens, width, dtype=dtype), randn(5, rank, width, dtype=dtype)
    h = randn(tokens, rank)
    untouched = (ids < 0) | (ids >= 5)
    want = torch.where(untouched[:, None], h.double(), 0.5 * deltas(x, a, ids))
    ops.lora_shrink(h, x, a, LoraBatch(slot_ids=ids), scale=0.5)
    assert_close(h, want)

    b, row_scale = randn(5, width, rank, dtype=dtype), randn(tokens)
    y = randn(tokens, width + 7, dtype=dtype)
    want = y.double()
    want[:, 3 : 3 + width] += 2 * row_scale.double()[:, None] * deltas(h, b, ids)
    before = y.clone()
    batch = LoraBatch(slot_ids=ids, row_scale=row_scale)
    ops.lora_expand(y, h, b, batch, slice_offset=3, scale=2.0)
    assert_close(y, want)
    assert torch.equal(y[untouched], before[untouched])
    assert torch.equal(y[:, :3], before[:, :3])
    assert torch.equal(y[:, 3 + width :], before[:, 3 + width :])


@each_half
def test_both_layouts_and_segments(dtype: torch.dtype) -> None:
    x, a = randn(9, 256, dtype=dtype), randn(3, 16, 256, dtype=dtype)
    ids = torch.tensor([-1, 2, 2, 0, 0, 0, -1, 1, 1], device=GPU)
    starts, ends = (torch.tensor(v, device=GPU) for v in ([7, 1, 3], [9, 3, 6]))
    slots = torch.tensor([1, 2, 0], device=GPU, dtype=torch.int32)
    want = deltas(x, a, ids)
    by_ids, by_segments, minor = (torch.zeros(9, 16, device=GPU) for _ in range(3))
    batch = LoraBatch(slot_ids=ids)
    segments = LoraBatch(seg_starts=starts, seg_ends=ends, seg_slots=slots)
    ops.lora_shrink(by_ids, x, a, batch)
    ops.lora_shrink(by_segments, x, a, segments)
    ops.lora_shrink(minor, x, a.transpose(1, 2).contiguous(), batch, layout="rank_minor")
    assert_close(by_ids, want)
    assert torch.equal(by_ids, by_segments)
    assert_close(minor, want)


@pytest.mark.parametrize(("tokens", "rank"), [(16, 16), (3, 40), (64, 24), (30, 96), (300, 8)])
def test_calls_without_a_plan_have_its_bits(tokens: int, rank: int) -> None:
    x, a, ids = randn(tokens, 1032).half(), randn(5, rank, 1032).half(), random_ids(tokens, 5)
    plan = torch.empty(heddle.lora_plan_bytes(tokens, rank), dtype=torch.uint8, device=GPU)
    ops.lora_plan(plan, LoraBatch(slot_ids=ids), tokens, 5, rank)
    rows, b = torch.arange(tokens, device=GPU).flip(0), randn(5, 1032, rank).half()
    by_rows = LoraBatch(seg_starts=rows, seg_lens=torch.ones_like(ids), seg_slots=ids.flip(0))
    results = []
    for batch in (LoraBatch(slot_ids=ids, plan=plan), LoraBatch(slot_ids=ids), by_rows):
        h, y = torch.zeros(tokens, rank, device=GPU), torch.ones_like(x)
        ops.lora_shrink(h, x, a, batch)
        ops.lora_expand(y, h, b, batch)
        results.append(torch.cat((h, y.float()), 1))
    assert all(torch.equal(other, results[0]) for other in results[1:])


class Site:
    """A linear layer of two slices with adapters of several ranks in tables."""

    ranks = (16, 8, 64)
    outs = (192, 64)
    width = 512

    def __init__(self, dtype: torch.dtype, *, aligned: bool = True) -> None:
        name = {torch.float16: "f16", torch.bfloat16: "bf16"}[dtype]
        slots, limit = len(self.ranks), max(self.ranks)
        self.a = heddle.AdapterTable(
            slots, [self.width] * 2, limit, dtype=name, device=GPU, aligned=aligned
        )
        self.b = heddle.AdapterTable(
            slots,
            self.outs,
            limit,
            dtype=name,
            layout="rank_minor",
            device="cuda:0",
            aligned=aligned,
        )
        self.dtype = dtype
        self.weights: dict[int, list[tuple[torch.Tensor, torch.Tensor, float]]] = {}
        for slot, rank in enumerate(self.ranks):
            self.set(slot, rank)

    def set(self, slot: int, rank: int) -> None:
        """A new adapter in a slot."""
        halves = []
        for s, out in enumerate(self.outs):
            a = randn(rank, self.width, dtype=self.dtype)
            b = randn(out, rank, dtype=self.dtype)
            self.a.set(slot, s, a)
            self.b.set(slot, s, b, scale=slot + 0.5)
            halves.append((a, b, slot + 0.5))
        self.weights[slot] = halves

    def clear(self, slot: int) -> None:
        self.a.clear(slot)
        self.b.clear(slot)
        self.weights.pop(slot, None)

    def want(self, y: torch.Tensor, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """y [tokens, all outs] after the call, in float64."""
        result, first = y.double(), 0
        for s, out in enumerate(self.outs):
            for slot, halves in self.weights.items():
                a, b, scale = halves[s]
                delta = scale * (x.double() @ a.double().T @ b.double().T)
                result[:, first : first + out] += delta * (ids == slot)[:, None]
            first += out
        return result

    def apply(self, y: torch.Tensor, x: torch.Tensor, ids: torch.Tensor, **options: Any) -> None:
        slices = list(y.split(list(self.outs), 1))
        ops.lora_apply(slices, x, self.a, self.b, LoraBatch(slot_ids=ids, **options))


@each_half
@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("planned", [False, True])
def test_apply_with_tables(dtype: torch.dtype, aligned: bool, planned: bool) -> None:
    site = Site(dtype, aligned=aligned)
    assert site.a.device == "cuda:0"
    for tokens in (1, 40, 300):
        x, y = randn(tokens, site.width, dtype=dtype), randn(tokens, 256, dtype=dtype)
        ids = random_ids(tokens, 3)
        want, options = site.want(y, x, ids), {}
        if planned:
            plan = torch.empty(heddle.lora_plan_bytes(tokens, 64), dtype=torch.uint8, device=GPU)
            ranks = torch.tensor(site.ranks, device=GPU)
            ops.lora_plan(plan, LoraBatch(slot_ids=ids), tokens, 3, 64, ranks)
            options = {"plan": plan}
        site.apply(y, x, ids, **options)
        assert_close(y, want)


def test_a_cleared_slot_touches_nothing() -> None:
    site = Site(torch.bfloat16)
    site.clear(1)
    site.clear(1)  # an empty slot may be cleared
    x, y = randn(6, site.width, dtype=site.dtype), randn(6, 256, dtype=site.dtype)
    ids = torch.tensor([0, 1, 2, 1, -1, 0], device=GPU)
    want, before = site.want(y, x, ids), y.clone()
    site.apply(y, x, ids)
    assert_close(y, want)
    assert torch.equal(y[[1, 3, 4]], before[[1, 3, 4]])


def test_tables_and_weights_of_another_place_are_refused() -> None:
    table = heddle.AdapterTable(1, [64], 8, dtype="f16", device=GPU)
    with pytest.raises(ValueError, match="weight is on cpu, but the table on cuda:0"):
        table.set(0, 0, torch.zeros(8, 64, dtype=torch.float16))
    with pytest.raises(ValueError, match="slot is 1, expected 0 to 0"):
        table.clear(1)
    x = torch.zeros(2, 64, dtype=torch.float16)
    with pytest.raises(ValueError, match=r"a\b.* cuda:0"):
        batch = LoraBatch(slot_ids=torch.zeros(2, dtype=torch.int32))
        ops.lora_shrink(torch.zeros(2, 8), x, table, batch)


@each_half
def test_punica(dtype: torch.dtype) -> None:
    layers, layer, tokens = 3, 1, 21
    for width, out in ((512, 16), (16, 384), (100, 70)):
        pages = [randn(layers, out, width, dtype=dtype) for _ in range(4)]
        pointers = torch.tensor([p.data_ptr() for p in pages], device=GPU)
        weights = torch.stack([p[layer] for p in pages])
        x, start = randn(tokens, width, dtype=dtype), randn(tokens, out, dtype=dtype)
        ids = random_ids(tokens, 4)
        y = start.clone()
        punica_kernels.dispatch_bgmv(y, x, pointers, ids, layer, 0.6)
        assert_close(y, start.double() + 0.6 * deltas(x, weights, ids))

        starts = torch.tensor([0, 2, 9, 9], dtype=torch.int32, device=GPU)
        ends = torch.tensor([2, 8, 9, 21], dtype=torch.int32, device=GPU)
        by_row = torch.full((tokens,), -1, device=GPU)
        for i, (first, last) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            by_row[first:last] = i
        tmp = torch.empty(punica_kernels.sgmv_cutlass_tmp_size(4), dtype=torch.uint8, device=GPU)
        want = start.double() + deltas(x, weights, by_row)
        y = start.clone()
        punica_kernels.sgmv_shrink(y, x, pointers, starts, ends, tmp, layer)
        assert_close(y, want)
        transposed = [p.transpose(1, 2).contiguous() for p in pages]
        pointers = torch.tensor([p.data_ptr() for p in transposed], device=GPU)
        y = start.clone()
        punica_kernels.sgmv_cutlass(y, x, pointers, starts, ends, tmp, layer)
        assert_close(y, want)


@each_half
def test_lorax(dtype: torch.dtype) -> None:
    tokens, width, rank, out = 30, 512, 16, 320
    x = randn(tokens, width, dtype=dtype)
    a, b = randn(4, rank, width, dtype=dtype), randn(4, out, rank, dtype=dtype)
    ids = random_ids(tokens, 4)
    h = torch.zeros(tokens, rank, device=GPU)
    lorax.bgmv_shrink(x, a, h, ids, 0.5)
    assert_close(h, 0.5 * deltas(x, a, ids))
    start = randn(tokens, out + 10, dtype=dtype)
    y = start.clone()
    lorax.bgmv_expand(h, b, y, ids)
    want = start.double()
    want[:, :out] += deltas(h, b, ids)
    assert_close(y, want)
    y = start.clone()
    lorax.bgmv_expand_slice(h, b, y, ids, 5, out)
    want = start.double()
    want[:, 5 : 5 + out] += deltas(h, b, ids)
    assert_close(y, want)

    lengths = torch.tensor([10, 0, 15, 5], device=GPU)
    starts = torch.cumsum(lengths, 0) - lengths
    of_sequence = torch.tensor([2, 0, -1, 3], device=GPU)
    by_row = of_sequence.repeat_interleave(lengths)
    batch = (starts, lengths, of_sequence, 4, 15)
    h.zero_()
    lorax.sgmv_shrink(x, a, h, *batch, 2.0)
    assert_close(h, 2 * deltas(x, a, by_row))
    y = start.clone()
    lorax.sgmv_expand(h, b, y, *batch, add_inputs=True)
    want = start.double()
    want[:, :out] += deltas(h, b, by_row)
    assert_close(y, want)
    y = start.clone()
    lorax.sgmv_expand_slice(h, b, y, *batch, 7, out, add_inputs=True)
    want = start.double()
    want[:, 7 : 7 + out] += deltas(h, b, by_row)
    assert_close(y, want)


def captured(call: Callable[[], None], stream: torch.cuda.Stream | None = None) -> Any:
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        call()
    return graph


@pytest.mark.parametrize("planned", [False, True])
def test_a_graph_replays_with_other_ids_and_other_adapters(planned: bool) -> None:
    site, tokens = Site(torch.bfloat16), 24
    x, y = randn(tokens, site.width, dtype=site.dtype), randn(tokens, 256, dtype=site.dtype)
    ids = random_ids(tokens, 3)
    plan = torch.empty(heddle.lora_plan_bytes(tokens, 64), dtype=torch.uint8, device=GPU)

    def step() -> None:
        if planned:
            ops.lora_plan(plan, LoraBatch(slot_ids=ids), tokens, 3, 64)
        site.apply(y, x, ids, plan=plan if planned else None)

    # On a stream that no call was made on: its context is made while the graph is captured.
    before = y.clone()
    graph = captured(step, torch.cuda.Stream())
    assert torch.equal(y, before), "capturing runs nothing"
    for rank in (None, 8, 48, 16):
        ids.copy_(random_ids(tokens, 3))
        x.normal_()
        if rank is not None:
            site.set(1, rank)  # between two replays, without waiting for the first
        want = site.want(y, x, ids)
        graph.replay()
        assert_close(y, want)
    site.clear(2)
    ids.fill_(2)
    before = y.clone()
    graph.replay()
    assert torch.equal(y, before)
    ids.fill_(-1)
    graph.replay()
    assert torch.equal(y, before)


def test_a_change_of_the_table_can_be_captured() -> None:
    site = Site(torch.float16)
    x, y = randn(2, site.width, dtype=site.dtype), randn(2, 256, dtype=site.dtype)
    ids = torch.zeros(2, dtype=torch.int32, device=GPU)
    clearing = captured(lambda: site.a.clear(0))
    want, before = site.want(y, x, ids), y.clone()
    site.apply(y, x, ids)  # captured only: the adapter is still there
    assert_close(y, want)
    clearing.replay()
    y.copy_(before)
    site.apply(y, x, ids)
    assert torch.equal(y, before)


def test_side_streams_give_the_bits_of_the_default_one() -> None:
    site = Site(torch.float16)
    x, start = randn(64, site.width, dtype=site.dtype), randn(64, 256, dtype=site.dtype)
    ids = random_ids(64, 3)
    want = start.clone()
    site.apply(want, x, ids)
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in range(4)]
    results = [start.clone() for _ in streams]
    torch.cuda.synchronize()
    for _ in range(25):
        for stream, y in zip(streams, results, strict=True):
            with torch.cuda.stream(stream):
                y.copy_(start)
                site.apply(y, x, ids)
    torch.cuda.synchronize()
    for y in results:
        assert torch.equal(y, want)


def test_python_threads_may_share_a_stream() -> None:
    site = Site(torch.bfloat16)
    x, start = randn(8, site.width, dtype=site.dtype), randn(8, 256, dtype=site.dtype)
    ids = random_ids(8, 3)
    want = start.clone()
    site.apply(want, x, ids)
    torch.cuda.synchronize()
    wrong: list[str] = []

    def work() -> None:
        for _ in range(50):
            y = start.clone()
            site.apply(y, x, ids)
            if not torch.equal(y, want):
                wrong.append("other bits")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_workspace_grows_and_graphs_keep_the_old_one() -> None:
    stream = torch.cuda.Stream()
    a = randn(2, 16, 256, dtype=torch.float16)

    def call(tokens: int) -> tuple[Any, Callable[[], torch.Tensor]]:
        x, ids = randn(tokens, 256, dtype=torch.float16), random_ids(tokens, 2)
        h = torch.zeros(tokens, 16, device=GPU)
        graph = captured(lambda: ops.lora_shrink(h, x, a, LoraBatch(slot_ids=ids)), stream)
        return graph, lambda: (h - deltas(x, a, ids)).abs().max()

    small, small_error = call(10)
    large, large_error = call(200_000)  # its plan alone is larger than the workspace at first
    for graph in (small, large, small):
        graph.replay()
        torch.cuda.synchronize()
    assert small_error() < 1e-3
    assert large_error() < 1e-3


def test_the_torch_operators_take_cuda_tensors() -> None:
    x, a, b = randn(5, 128), randn(2, 8, 128), randn(2, 96, 8)
    x, a, b = x.half(), a.half(), b.half()
    ids = torch.tensor([0, 1, -1, 1, 0], device=GPU)

    def step(y: torch.Tensor, h: torch.Tensor, plan: torch.Tensor) -> torch.Tensor:
        batch = LoraBatch(slot_ids=ids, plan=plan)
        ops.lora_plan(plan, batch, 5, 2, 8)
        ops.lora_shrink(h, x, a, batch)
        ops.lora_expand(y, h, b, batch)
        return y * 2

    def outputs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        plan = torch.zeros(heddle.lora_plan_bytes(5, 8), dtype=torch.uint8, device=GPU)
        return torch.ones(5, 96, device=GPU).half(), torch.zeros(5, 8, device=GPU), plan

    want = step(*outputs())
    assert torch.equal(torch.compile(step, fullgraph=True, backend="aot_eager")(*outputs()), want)
    assert not torch.equal(want, torch.full_like(want, 2))


@each_half
def test_several_adapters_for_one_token(dtype: torch.dtype) -> None:
    ranks, tokens = (4, 16, 9), 40
    name = {torch.float16: "f16", torch.bfloat16: "bf16"}[dtype]
    a = heddle.AdapterTable(3, [128], 16, dtype=name, device=GPU)
    b = heddle.AdapterTable(3, [96], 16, dtype=name, layout="rank_minor", device=GPU)
    halves = [(randn(r, 128, dtype=dtype), randn(96, r, dtype=dtype)) for r in ranks]
    for slot, (half_a, half_b) in enumerate(halves):
        a.set(slot, 0, half_a)
        b.set(slot, 0, half_b, scale=slot + 0.5)
    x, start = randn(tokens, 128, dtype=dtype), randn(tokens, 96, dtype=dtype)
    starts = torch.zeros(tokens + 1, dtype=torch.int32, device=GPU)
    slots = torch.zeros(3 * tokens, dtype=torch.int64, device=GPU)
    scales = torch.zeros(3 * tokens, device=GPU)

    def apply(to: torch.Tensor, **rows: Any) -> None:
        ops.lora_apply([to], x, a, b, LoraBatch(**rows))

    pairs = {"pair_starts": starts, "pair_slots": slots, "pair_scales": scales}
    with pytest.raises(ValueError, match="max_pairs is absent, but pair_starts is on cuda:0"):
        apply(start, **pairs)
    y = start.clone()
    graph = captured(lambda: apply(y, **pairs, max_pairs=3))
    for _ in range(3):
        counts = torch.randint(0, 4, (tokens,), device=GPU)
        counts[0] = 0
        starts[1:] = counts.cumsum(0)
        slots.copy_(random_ids(3 * tokens, 3))
        scales.normal_()
        y.copy_(start)
        graph.replay()
        # One call with ids after another, to y in f32.
        want = start.float()
        for index in range(3):
            at = (starts[:-1] + index).clamp(max=3 * tokens - 1).long()
            ids = torch.where(counts > index, slots[at], -1)
            apply(want, slot_ids=ids, row_scale=scales[at])
        assert torch.equal(y, want.to(dtype))
        assert torch.equal(y[0], start[0])
        assert not torch.equal(y, start)

    ones = torch.arange(tokens + 1, device=GPU)
    by_pairs, by_ids = start.clone(), start.clone()
    apply(by_pairs, pair_starts=ones, pair_slots=slots, pair_scales=scales, max_pairs=1)
    apply(by_ids, slot_ids=slots[:tokens], row_scale=scales[:tokens])
    assert torch.equal(by_pairs, by_ids)


def test_validation_names_row_and_value(monkeypatch: pytest.MonkeyPatch) -> None:
    x, a, h = randn(3, 64).half(), randn(2, 8, 64).half(), torch.zeros(3, 8, device=GPU)
    batch = LoraBatch(slot_ids=torch.tensor([0, 5, -1], device=GPU))
    ops.lora_shrink(h, x, a, batch)
    assert not h[1].any()
    monkeypatch.setenv("HEDDLE_VALIDATE", "1")
    with pytest.raises(ValueError, match=r"slot_ids\[1\] is 5, expected below num_slots = 2"):
        ops.lora_shrink(h, x, a, batch)
    captured(lambda: ops.lora_shrink(h, x, a, batch))  # not checked: it cannot wait


def test_an_operation_without_cuda_kernel_is_refused() -> None:
    weight = heddle.PackedWeight(torch.ones(4, 8), "F32", 4, 8).to(GPU)
    with pytest.raises(NotImplementedError, match="linear.*cuda:0"):
        ops.linear(randn(2, 4), randn(2, 8), weight)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs a second CUDA device")
def test_a_call_runs_on_the_device_of_its_tensors() -> None:
    second = torch.device("cuda", 1)
    x, a = (randn(*shape).half().to(second) for shape in ((4, 64), (2, 8, 64)))
    ids = torch.tensor([0, 1, -1, 1], device=second)
    h = torch.zeros(4, 8, device=second)
    assert torch.cuda.current_device() == 0
    ops.lora_shrink(h, x, a, LoraBatch(slot_ids=ids))
    assert torch.cuda.current_device() == 0
    assert_close(h, deltas(x, a, ids))
