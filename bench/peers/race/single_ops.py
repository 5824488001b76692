#!/usr/bin/env python3
"""LoRAX's single LoRA operations next to heddle's drop-ins for them, as their callers call them.

  LORAX_SOURCE=FOLDER single_ops.py [--json FILE] [--commit COMMIT]

No plan is given; `with a plan's launch` is what heddle takes that makes one for each call: of up to
256 rows, its way before it could do without. Graphs of calls are replayed in turns, over so many
sets of arrays that one comes again after 2.25 times the L2 cache; `host` is what a call takes of
the thread that makes it. Index tensors are i64, as LoRAX has them, i32, and of both types.
"""

from __future__ import annotations

import functools
import os
import pathlib
import statistics
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "stubs"), str(HERE.parents[1])]

import lorax_calls  # noqa: E402
import torch  # noqa: E402
from call_cost import run, samples_of  # noqa: E402
from timing import Recorded, interleaved  # noqa: E402
from triton.compiler.errors import CompilationError  # noqa: E402

import heddle  # noqa: E402
from heddle import ops  # noqa: E402
from heddle.compat.lorax import ops as heddle_ops  # noqa: E402

OPS = ("bgmv_shrink", "bgmv_expand_slice", "sgmv_shrink", "sgmv_expand_slice")
# Rows, adapters, rank, width.
DECODE = ((1, 1, 16, 4096), (16, 4, 16, 4096), (32, 32, 16, 4096), (32, 8, 64, 4096))
DECODE += ((128, 32, 16, 4096), (256, 8, 16, 4096), (32, 8, 16, 14336))
PROMPTS = ((64, 4, 16, 4096), (256, 4, 16, 4096), (256, 8, 64, 4096), (512, 8, 16, 4096))
PROMPTS += ((512, 8, 64, 4096), (2048, 8, 16, 4096))
OTHER_INDICES = ((32, 8, 64, 4096), (256, 8, 64, 4096))  # cells with all types of indices
FEWEST_CALLS, L2_TIMES = 24, 2.25
HOST_ROUNDS, HOST_CALLS = 7, 100
LARGEST_ERROR = 0.01  # of the norm

Op = Callable[..., None]


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda").bfloat16()


class Cell:
    """The arrays of a cell; call(op, name)(i) is a call with the i-th set."""

    def __init__(self, shape: tuple[int, int, int, int], is_prompt: bool, indices: str) -> None:
        self.shape, self.is_prompt, self.indices = shape, is_prompt, indices
        tokens, adapters, rank, width = shape
        l2 = torch.cuda.get_device_properties(0).L2_cache_size
        self.num_sets = int(L2_TIMES * l2 / (2 * width * (adapters * rank + tokens))) + 2
        sets = range(self.num_sets)
        self.x = [randn(tokens, width) for _ in sets]
        self.y = [torch.zeros_like(self.x[0]) for _ in sets]
        self.a = [randn(adapters, rank, width) * width**-0.5 for _ in sets]
        self.b = [randn(adapters, width, rank) for _ in sets]
        self.h = torch.randn(tokens, rank, device="cuda")
        self.out = torch.zeros_like(self.h)
        dtype = torch.int32 if indices == "i32" else torch.int64
        ids = torch.arange(adapters, device="cuda", dtype=dtype)
        self.rows: tuple[Any, ...] = (ids.repeat(tokens // adapters),)
        if is_prompt:
            each = tokens // adapters
            lengths = torch.full_like(ids, each)
            other = lengths.int() if indices == "mixed" else lengths
            self.rows = (ids * each, other, ids, adapters, each)

    def call(self, op: Op, name: str) -> Callable[[int], None]:
        if name.endswith("shrink"):
            return lambda i: op(self.x[i], self.a[i], self.out, *self.rows, 1.0)
        place = 0, self.shape[3], True
        return lambda i: op(self.h, self.b[i], self.y[i], *self.rows, *place)

    def call_with_plan(self, name: str) -> Callable[[int], None]:
        """heddle's call by ends of segments, with the launch of a plan before."""
        tokens, adapters, rank, _ = self.shape
        plan = torch.empty(heddle.lora_plan_bytes(tokens, rank), dtype=torch.uint8, device="cuda")

        def call(i: int) -> None:
            rows: dict[str, Any] = {"slot_ids": self.rows[0]}
            if self.is_prompt:
                starts, lengths, ids = self.rows[:3]
                rows = {"seg_starts": starts, "seg_ends": starts + lengths, "seg_slots": ids}
            batch = heddle.LoraBatch(**rows, plan=plan)
            ops.lora_plan(plan, batch, tokens, adapters, rank)
            if name.endswith("shrink"):
                ops.lora_shrink(self.out, self.x[i], self.a[i], batch, accumulate=True)
            else:
                ops.lora_expand(self.y[i], self.h, self.b[i], batch)

        return call

    def result(self, op: Op, name: str) -> torch.Tensor:
        out = self.out if name.endswith("shrink") else self.y[0]
        out.zero_()
        self.call(op, name)(0)
        return out.double()


def race(cell: Cell, name: str, peer: Op) -> list[dict[str, Any]]:
    """Records of both, where the results agree."""
    parties = {"heddle": getattr(heddle_ops, name), lorax_calls.PEER: peer}
    got, want = (cell.result(op, name) for op in parties.values())
    error = float((got - want).norm() / want.norm())
    if not error <= LARGEST_ERROR:
        sys.exit(f"{name} {cell.shape}: the results differ by {error} of their norm")
    calls = max(FEWEST_CALLS, cell.num_sets)
    of_parties = {party: cell.call(op, name) for party, op in parties.items()}
    of_parties["heddle, with a plan's launch"] = cell.call_with_plan(name)
    for call in of_parties.values():
        call(0)
    graphs = {p: Recorded(call, calls, cell.num_sets) for p, call in of_parties.items()}
    samples = interleaved({party: graph.launch for party, graph in graphs.items()}, calls)
    tokens, adapters, rank, width = cell.shape
    facts = {"op": name, "tokens": tokens, "adapters": adapters, "rank": rank, "width": width}
    facts["indices"] = cell.indices
    records = []
    for party, call in of_parties.items():
        first = functools.partial(call, 0)
        host = samples_of(first, HOST_ROUNDS, HOST_CALLS, torch.cuda.synchronize)
        for form, of_form in (("graph", samples[party]), ("host", host)):
            rounded = [round(us, 3) for us in of_form]
            us = statistics.median(rounded)
            records.append({**facts, "form": form, "party": party, "us": us, "samples": rounded})
    for ours, theirs, before in zip(records[:2], records[2:4], records[4:], strict=True):
        verdict = "" if ours["us"] <= theirs["us"] else "  SLOWER"
        label = f"{name} {tokens}/{adapters} r{rank} {width} {cell.indices} {ours['form']}"
        times = f"{ours['us']:7.2f} / {theirs['us']:7.2f}, with plan {before['us']:7.2f}"
        print(f"{label:56s} {times}{verdict}", flush=True)
    return records


def measure() -> dict[str, Any]:
    version = lorax_calls.install(pathlib.Path(os.environ["LORAX_SOURCE"]))["version"]
    peers = {op: getattr(import_module(f"lorax_server.utils.ops.{op}"), op) for op in OPS}
    torch.manual_seed(1)
    records: list[dict[str, Any]] = []
    with torch.cuda.stream(torch.cuda.Stream()):
        for is_prompt, shapes in ((False, DECODE), (True, PROMPTS)):
            names = OPS[2:] if is_prompt else OPS[:2]
            for shape in shapes:
                others = (("i32", "mixed") if is_prompt else ("i32",)) * (shape in OTHER_INDICES)
                for indices in ("i64", *others):
                    cell = Cell(shape, is_prompt, indices)
                    for name in names:
                        try:
                            records += race(cell, name, peers[name])
                        except CompilationError as error:
                            print(f"{name}: Triton does not compile it: {error!r:.60}", flush=True)
    return {
        "what": "microseconds of a call: heddle's drop-ins and LoRAX's Triton kernels, in turns",
        "device": torch.cuda.get_device_name(),
        "versions": {"torch": torch.__version__, "lorax": version},
        "records": records,
    }


if __name__ == "__main__":
    run(__doc__ or "", measure)
