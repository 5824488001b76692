#!/usr/bin/env python3
"""Where the time of a step on a GPU goes, kernel by kernel.

Usage: step_trace.py MODEL [--rows 32] [--adapters 8] [--rank 16] [--context 1024] [--prompt 0] [--json FILE] [--commit NAME].
MODEL is what heddle.LLM takes. --rows requests with --context tokens each decode, spread over --adapters adapters on all linear
layers (0: none); --prompt N in place of that: a prompt of N tokens. torch.profiler notes when each kernel begins and ends. Kernels
begin before what they wait for has ended, so a kernel is given the time from the end of the one before it to its own end: these
times add up to the step. Prints the median of each place in a layer, and of each place from the last layer of a step to the
second one of the next ("end": its last layer, the head, what draws tokens, and the first site). The profiler makes steps a few
per cent longer: `step` is measured without it, in the same run. A prompt is one step, without an end.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import heddle
import torch
from load_adapter import Weights
from torch.profiler import ProfilerActivity, profile

LAYER_BEGINS = "rope"  # a kernel that each layer has once
# Part of a kernel's name, and what it is called here; the first that fits.
NAMES = (
    ("shrink", "A x"),
    ("grouped_join", "join h"),
    ("attention::decode", "attention"),
    ("attention::prefill", "attention"),
    ("attention::", LAYER_BEGINS),
    ("linear_site::", "site"),
    ("norm::", "norm"),
    ("gated_kernel", "activation"),
    ("sample_kernel", "sample"),
    ("embedding", "embedding"),
    ("lora::", "plan"),
)
WARM_UP, STEPS, TRACED = 10, 200, 80


@dataclass
class Place:
    """What a kernel took from the end of the one before it."""

    kernel: str
    us: float


def called(name: str) -> str:
    return next((short for part, short in NAMES if part in name), "other")


def traced(run: Callable[[], object]) -> list[Place]:
    """The kernels of run(), in the order in which they end."""
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        run()
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        profiler.export_chrome_trace(file.name)
        with open(file.name) as trace:
            events = json.load(trace)["traceEvents"]
    ends = sorted((e["ts"] + e["dur"], e["name"]) for e in events if e.get("cat") == "kernel")
    return [Place(called(name), end - before) for (before, _), (end, name) in zip(ends, ends[1:])]


def medians(runs: list[list[Place]]) -> list[dict[str, Any]]:
    """Of the runs that have the kernels which most have."""
    kernels = collections.Counter(tuple(p.kernel for p in run) for run in runs).most_common(1)[0][0]
    alike = [run for run in runs if tuple(p.kernel for p in run) == kernels]
    return [
        {"kernel": kernel, "us": round(statistics.median(run[i].us for run in alike), 2)}
        for i, kernel in enumerate(kernels)
    ]


def cut_in_layers(places: list[Place]) -> tuple[list[list[Place]], list[list[Place]]]:
    """Layers, and what lies between the last layer of a step and the second one of the next."""
    begins = [i for i, place in enumerate(places) if place.kernel == LAYER_BEGINS]
    parts = [places[begin:end] for begin, end in zip(begins, begins[1:])]
    is_end = [any(p.kernel == "sample" for p in part) for part in parts]
    return (
        [part for part, ends in zip(parts, is_end) if not ends],
        [part for part, ends in zip(parts, is_end) if ends],
    )


def measure(llm: heddle.LLM, given: argparse.Namespace) -> dict[str, Any]:
    draw = random.Random(0)
    num_tokens = given.prompt or given.context
    names = [f"adapter/{i}" for i in range(given.adapters)]
    rows = 1 if given.prompt else given.rows
    chosen = [names[i % len(names)] for i in range(rows)] if names else None

    def run(tokens: int) -> float:
        prompts = [[draw.randrange(100, 1000) for _ in range(num_tokens)] for _ in range(rows)]
        begin = time.perf_counter()
        llm.generate(prompts, adapter=chosen, max_tokens=tokens, ignore_end=True, temperature=0)
        return 1e3 * (time.perf_counter() - begin)

    run(WARM_UP)
    if given.prompt:
        samples = [run(1) for _ in range(5)]
        places = traced(lambda: run(1))
    else:
        samples = [(run(WARM_UP + STEPS) - run(WARM_UP)) / STEPS for _ in range(3)]
        places = traced(lambda: run(TRACED))
        places = places[len(places) // 2 : len(places) * 3 // 4]  # in which all rows decode
    layers, ends = cut_in_layers(places)
    record: dict[str, Any] = {
        "rows": rows,
        "adapters": given.adapters,
        "tokens": num_tokens,
        "is_prompt": bool(given.prompt),
        "ms": statistics.median(samples),
        "samples": samples,
        "layer": medians(layers),
    }
    if ends:
        record["end"] = medians(ends)
    return record


def show(record: dict[str, Any]) -> None:
    print(f"step {record['ms']:.3f} ms, {record['rows']} rows, {record['adapters']} adapters, {record['tokens']} tokens")
    for part in ("layer", "end"):
        places = record.get(part, [])
        print(f"  {part} {sum(p['us'] for p in places):.1f} us: " + ", ".join(f"{p['kernel']} {p['us']}" for p in places))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--adapters", type=int, default=8)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--prompt", type=int, default=0)
    parser.add_argument("--json", metavar="FILE", help="adds to its records")
    parser.add_argument("--commit", default="")
    given = parser.parse_args()

    with heddle.LLM(
        given.model, device="cuda", max_batch=given.rows, prefill_chunk=max(given.prompt, 2048), prefix_cache=False
    ) as llm:
        weights = Weights(llm, given.rank, "bfloat16")
        for i in range(given.adapters):
            llm.load_adapter(f"adapter/{i}", weights.make(i), weights.config)
        record = {"model": given.model, **measure(llm, given)}
    show(record)
    if given.json:
        add_record(given.json, record, given.commit)


def add_record(path: str, record: dict[str, Any], commit: str) -> None:
    try:
        with open(path) as file:
            all_records = json.load(file)
    except FileNotFoundError:
        all_records = {
            "what": "bench/step_trace.py: the kernels of a step, us from the end of the one before",
            "device": {"name": torch.cuda.get_device_name()},
            "commit": commit,
            "date": datetime.date.today().isoformat(),
            "records": [],
        }
    all_records["records"].append(record)
    with open(path, "w") as file:
        json.dump(all_records, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
