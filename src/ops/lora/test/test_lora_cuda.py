"""LoRA on torch's CUDA tensors: adapter tables, plans, CUDA graphs, streams and threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from torch_on_gpu import GPU, each_half, seed_of_torch, torch

import heddle
from heddle import LoraBatch, ops

__all__ = ["seed_of_torch"]

STEP = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-22}
"""Largest relative error of one rounding; for f32 that of the two halves that h enters as."""


def randn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, device=GPU).to(dtype)


def random_ids(tokens: int, slots: int) -> torch.Tensor:
    """Some rows without adapter: -1, and one past the last."""
    return torch.randint(-1, slots + 1, (tokens,), device=GPU)


def deltas(x: torch.Tensor, weights: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """weights[ids[t]] x[t] in float64, zero for rows without adapter; weights [slots, out, in]."""
    result = x.new_zeros((len(x), weights.shape[1]), dtype=torch.float64)
    for slot, weight in enumerate(weights):
        result += (x.double() @ weight.double().T) * (ids == slot)[:, None]
    return result


def assert_close(got: torch.Tensor, want: torch.Tensor) -> None:
    """One rounding of each element, and of sums a part of the largest. NaN never agrees."""
    limit, got = 1.01 * STEP[got.dtype] * want.abs() + 2e-5 * want.abs().max(), got.double()
    wrong = ~((got - want).abs() <= limit)
    assert not wrong.any(), (
        f"{int(wrong.sum())} of {wrong.numel()} differ, "
        f"first {float(got[wrong][0])} for {float(want[wrong][0])}"
    )


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
            slots, self.outs, limit, dtype=name, layout="rank_minor", device="cuda:0", aligned=aligned
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

    def apply(self, y: torch.Tensor, x: torch.Tensor, ids: Any, **options: Any) -> None:
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


def test_pairs_are_calls_with_ids_one_after_another() -> None:
    site, tokens = Site(torch.float16), 40
    x, y = randn(tokens, site.width, dtype=site.dtype), randn(tokens, 256, dtype=site.dtype)
    counts = torch.randint(0, 4, (tokens,), device=GPU)
    starts = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    slots, scales = random_ids(3 * tokens, 3), randn(3 * tokens)
    want = y.float()
    for index in range(3):
        at = (starts[:-1] + index).clamp(max=3 * tokens - 1)
        site.apply(want, x, torch.where(counts > index, slots[at], -1), row_scale=scales[at])
    site.apply(y, x, None, pair_starts=starts, pair_slots=slots, pair_scales=scales, max_pairs=3)
    assert torch.equal(y, want.to(y.dtype))


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


def test_validation_names_row_and_value(monkeypatch: pytest.MonkeyPatch) -> None:
    x, a, h = randn(3, 64).half(), randn(2, 8, 64).half(), torch.zeros(3, 8, device=GPU)
    batch = LoraBatch(slot_ids=torch.tensor([0, 5, -1], device=GPU))
    ops.lora_shrink(h, x, a, batch)
    assert not h[1].any()
    monkeypatch.setenv("HEDDLE_VALIDATE", "1")
    with pytest.raises(ValueError, match=r"slot_ids\[1\] is 5, expected below num_slots = 2"):
        ops.lora_shrink(h, x, a, batch)
    captured(lambda: ops.lora_shrink(h, x, a, batch))  # not checked: it cannot wait


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
