"""Graphs of calls, and the time of their replays."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
import triton
import triton.language as tl

WARM_UP, ROUNDS = 2, 9
AHEAD_CYCLES = 600_000  # the GPU waits for so long while the host launches a graph
READ_BLOCK = 4096  # values of 4 bytes that a block of read_kernel reads


@triton.jit
def read_kernel(values, sums, count, BLOCK: tl.constexpr):
    """Reads a piece of memory; writes nothing unless its sum is one that does not occur."""
    places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.sum(tl.load(values + places, mask=places < count, other=0), axis=0)
    if total == 0x5EEDBEEF:
        tl.store(sums, total)


def read(piece: torch.Tensor, sums: torch.Tensor) -> None:
    """All bytes of a contiguous tensor, once."""
    values = piece.view(torch.int32)
    count = values.numel()
    read_kernel[(triton.cdiv(count, READ_BLOCK),)](values, sums, count, BLOCK=READ_BLOCK)


class Recorded:
    """A captured graph of call(0), call(1), ..., whose sets take turns."""

    def __init__(self, call: Callable[[int], None], calls: int, num_sets: int) -> None:
        """On the current stream, which must not be the default one. torch.cuda.graph would do the
        same, and empty torch's cache of memory each time."""
        self.graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        self.graph.capture_begin(capture_error_mode="thread_local")
        try:
            for i in range(calls):
                call(i % num_sets)
        finally:
            self.graph.capture_end()

    def launch(self) -> None:
        self.graph.replay()


def interleaved(
    launches: dict[str, Callable[[], None]],
    calls: int,
    rounds: int = ROUNDS,
    warm_up: int = WARM_UP,
) -> dict[str, list[float]]:
    """Microseconds of a call, one sample for each round: in each, every graph is replayed once.

    The order moves on by one from round to round. Before each replay the GPU waits for a
    moment, so that the launch of the graph is not in its time.
    """
    names = list(launches)
    samples: dict[str, list[float]] = {name: [] for name in names}
    for number in range(warm_up + rounds):
        first = number % len(names)
        events = {}
        for name in names[first:] + names[:first]:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda._sleep(AHEAD_CYCLES)
            begin.record()
            launches[name]()
            end.record()
            events[name] = begin, end
        torch.cuda.synchronize()
        if number >= warm_up:
            for name, (begin, end) in events.items():
                samples[name].append(1e3 * begin.elapsed_time(end) / calls)
    return samples


def eager(call: Callable[[], None], rounds: int = 21) -> list[float]:
    """Microseconds of one call from an idle GPU until it is idle again, as a host sees it."""
    samples = []
    for number in range(rounds + 3):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        call()
        torch.cuda.synchronize()
        if number >= 3:
            samples.append(1e6 * (time.perf_counter() - begin))
    return samples
