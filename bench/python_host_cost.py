#!/usr/bin/env python3
"""What a call from Python costs besides the work: arrays of one or two elements.

Usage: python_host_cost.py [--json FILE]. Prints microseconds per call (median of the rounds, and
the fastest round) for NumPy arrays, torch CPU tensors, and torch tensors that offer `__dlpack__`
alone; the number of arrays is varied to show what one of them costs.
"""

from __future__ import annotations

import platform
import statistics
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from call_cost import run, samples_of

try:  # before heddle, which then registers its torch operators: calls ask whether torch traces
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

import heddle
from heddle import ops

ROUNDS, CALLS = 31, 4000


class OnlyDlpack:
    """A tensor that shows only `__dlpack__`, as a framework without the C exchange interface has it."""

    def __init__(self, tensor: Any) -> None:
        self.__dlpack__ = tensor.__dlpack__
        self.tensor = tensor

    def __dlpack_device__(self) -> Any:
        return self.tensor.__dlpack_device__()


def calls(convert: Callable[[Any], Any]) -> dict[str, Callable[[], None]]:
    """One call for each number of arrays."""

    def ints(*values: int) -> Any:
        return convert(np.array(values, np.int64))

    def floats(*shape: int) -> Any:
        return convert(np.full(shape, 0.5, np.float32))

    tokens, accepted, nodes = (
        convert(np.zeros((1, 2), np.int64)),
        ints(0),
        convert(np.zeros((1, 1), np.int64)),
    )
    tree = (
        tokens,
        accepted,
        nodes,
        ints(1),
        floats(1, 2),
        floats(2, 2),
        convert(np.ones((1, 1), np.int64)),
    )
    ten = (*tree, ints(0, 1), ints(7), ints(0))
    y, x, weight = floats(1, 2), floats(1, 2), floats(2)
    outputs, batch = [floats(1, 2)], heddle.LoraBatch(slot_ids=ints(-1))
    tables = (
        heddle.AdapterTable(1, [2], 1),
        heddle.AdapterTable(1, [2], 1, layout="rank_minor"),
    )
    o, q, k, v = (floats(1, 1, 2) for _ in range(4))
    cache = heddle.PagedKv.from_pool(floats(1, 1, 1, 2), floats(1, 1, 1, 2))
    table = heddle.PageTable(ints(0, 1), ints(0), ints(1))
    named = {name: ints(0) for name in ("start_lengths", "kv_lengths", "positions", "kv_slots")}
    named |= {"q_indptr": ints(0, 0), "page_indptr": ints(0, 0), "last_page_len": ints(0)}
    named |= {"pages": ints(0), "cache_lengths": ints(3), "seq_page_table": nodes}
    return {
        "10 arrays (verify_tree_stochastic)": lambda: ops.verify_tree_stochastic(*ten),
        "10 arrays by name (prepare_batch)": lambda: ops.prepare_batch(**named, page_size=4),
        "3 arrays (rms_norm)": lambda: ops.rms_norm(y, x, weight),
        "3 arrays (lora_apply)": lambda: ops.lora_apply(outputs, x, *tables, batch),
        "7 arrays (batch_decode)": lambda: ops.batch_decode(o, None, q, cache, table),
        "7 arrays (kv_append)": lambda: ops.kv_append(cache, table, k, v),
    }


def measure() -> dict[str, Any]:
    """All cases of the frameworks that are there; each is printed."""
    frameworks: dict[str, Callable[[Any], Any]] = {"numpy": lambda a: a}
    versions = {}
    if torch is not None:
        frameworks["torch"] = torch.from_numpy
        frameworks["torch through __dlpack__ alone"] = lambda a: OnlyDlpack(torch.from_numpy(a))
        versions["torch"] = torch.__version__
    records = []
    for framework, convert in frameworks.items():
        for case, call in calls(convert).items():
            rounds = samples_of(call, ROUNDS, CALLS)
            median, fastest = statistics.median(rounds), min(rounds)
            print(f"{median:7.2f} us (fastest {fastest:.2f})  {case}, {framework}")
            samples = [round(us, 3) for us in rounds]
            records.append({"framework": framework, "case": case, "samples": samples})
    return {
        "what": "microseconds per call from Python, arrays of one or two elements",
        "machine": platform.machine(),
        "versions": {
            "heddle": heddle.__version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            **versions,
        },
        "torch_operators_registered": "heddle.torch" in sys.modules,
        "records": records,
    }


if __name__ == "__main__":
    run(__doc__ or "", measure)
