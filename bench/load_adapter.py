#!/usr/bin/env python3
"""How long a trainer waits until its new weights answer, and what that does to requests that run.

Usage: load_adapter.py MODEL [--device cuda] [--rank 32] [--rows 32] [--loads 20] [--dtype bfloat16]
[--json FILE] [--commit NAME]. MODEL is what heddle.LLM takes. While --rows requests decode with an adapter, another
version of it is loaded from memory --loads times: `heddle.LLM.load_adapter` of tensors for all
linear layers, those of torch on the GPU where the engine runs there, else those of NumPy. Prints
milliseconds:

  load           load_adapter, from the call to its return
  first token    from such a call to the first token of a request with the new weights
  step           of the running requests, without loads: median, longest. A thread asks
                 `heddle.LLM.stats` all the time, which the engine answers between two steps; where it
                 misses one, both have their mean
  step, loads    the same while adapters are loaded, and no request begins

Each answer is checked to have been written by the version that was loaded last.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import heddle

PROMPT = list(range(1, 17))


def shapes_of(model: Any, rank: int) -> Iterator[tuple[str, tuple[int, int]]]:
    """Names and shapes of the tensors of an adapter on all linear layers."""
    hidden, inner = model.hidden_size, model.intermediate_size
    q, kv = model.num_q_heads * model.head_dim, model.num_kv_heads * model.head_dim
    modules = {
        "self_attn.q_proj": (hidden, q),
        "self_attn.k_proj": (hidden, kv),
        "self_attn.v_proj": (hidden, kv),
        "self_attn.o_proj": (q, hidden),
        "mlp.gate_proj": (hidden, inner),
        "mlp.up_proj": (hidden, inner),
        "mlp.down_proj": (inner, hidden),
    }
    for layer in range(model.num_layers):
        for name, (features, outputs) in modules.items():
            prefix = f"base_model.model.model.layers.{layer}.{name}"
            yield f"{prefix}.lora_A.weight", (rank, features)
            yield f"{prefix}.lora_B.weight", (outputs, rank)


class Weights:
    """Versions of an adapter in memory of the trainer."""

    def __init__(self, llm: heddle.LLM, rank: int, dtype: str) -> None:
        self._shapes = dict(shapes_of(llm.model, rank))
        self._dtype = dtype
        self._device = "cuda" if llm.device.startswith("cuda") else "cpu"
        self.config = {
            "peft_type": "LORA",
            "r": rank,
            "lora_alpha": rank,
            "target_modules": sorted({name.split(".lora_")[0].rsplit(".", 1)[1] for name in self._shapes}),
        }

    def make(self, seed: int) -> dict[str, Any]:
        """Small random values, so that answers stay those of a model."""
        if self._device == "cuda":
            import torch

            generator = torch.Generator("cuda").manual_seed(seed)
            kind = getattr(torch, self._dtype)
            return {
                name: torch.randn(shape, generator=generator, device="cuda").mul_(0.01).to(kind)
                for name, shape in self._shapes.items()
            }
        import numpy as np

        random = np.random.default_rng(seed)
        kind = np.float16 if self._dtype == "float16" else np.float32
        return {
            name: random.standard_normal(shape, np.float32).astype(kind) * kind(0.01)
            for name, shape in self._shapes.items()
        }

    def num_bytes(self, tensors: dict[str, Any]) -> int:
        return sum(tensor.nbytes for tensor in tensors.values())


class Steps:
    """How long steps took, in milliseconds."""

    def __init__(self, llm: heddle.LLM) -> None:
        self._llm = llm
        self._took: list[float] = []
        self._is_over = threading.Event()

    def watch(self) -> None:
        count, seconds = self._so_far()
        while not self._is_over.is_set():
            new_count, new_seconds = self._so_far()
            if new_count == count:
                continue
            num_steps = new_count - count
            self._took += [1e3 * (new_seconds - seconds) / num_steps] * num_steps
            count, seconds = new_count, new_seconds

    def end(self) -> None:
        self._is_over.set()

    def begin(self) -> int:
        return len(self._took)

    def milliseconds(self, begin: int) -> list[float]:
        return self._took[begin:]

    def _so_far(self) -> tuple[int, float]:
        stats = self._llm.stats()
        return (
            int(stats.prefill_steps + stats.decode_steps),
            float(stats.prefill_seconds + stats.decode_seconds),
        )


@contextmanager
def running(llm: heddle.LLM, rows: int) -> Iterator[Steps]:
    """Requests that decode meanwhile, to the end of the context."""
    steps = Steps(llm)
    options: dict[str, Any] = {"adapter": "policy", "max_tokens": llm.max_context, "ignore_end": True}
    streams = [llm.stream(PROMPT, **options) for _ in range(rows)]
    watcher = threading.Thread(target=steps.watch)
    watcher.start()
    time.sleep(1)  # prompts are prefilled, and a GPU has recorded its graphs
    try:
        yield steps
    finally:
        for stream in streams:
            stream.cancel()
        steps.end()
        watcher.join()


def measure(llm: heddle.LLM, weights: Weights, rows: int, loads: int) -> dict[str, list[float]]:
    versions = [weights.make(seed) for seed in range(2)]
    samples: dict[str, list[float]] = {"load": [], "first token": []}
    llm.load_adapter("policy", versions[1], weights.config)
    with running(llm, rows) as steps:
        for version in versions * 4:  # the first ones allocate what later ones use again
            llm.load_adapter("policy", version, weights.config)
        begin = steps.begin()
        time.sleep(2)
        samples["step"] = steps.milliseconds(begin)
        begin = steps.begin()
        for i in range(loads):
            start = time.perf_counter()
            llm.load_adapter("policy", versions[i % 2], weights.config)
            samples["load"].append(1e3 * (time.perf_counter() - start))
        samples["step, loads"] = steps.milliseconds(begin)
        for i in range(loads):
            start = time.perf_counter()
            receipt = llm.load_adapter("policy", versions[i % 2], weights.config)
            answer = llm.generate(PROMPT, adapter="policy", max_tokens=1, ignore_end=True)
            samples["first token"].append(1e3 * (time.perf_counter() - start))
            assert answer.adapter_digest == receipt.digest
    return samples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--device", default=None)
    parser.add_argument("--rank", type=int, default=32)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--loads", type=int, default=20)
    parser.add_argument("--dtype", default="bfloat16", choices=("float32", "float16", "bfloat16"))
    parser.add_argument("--json", default=None, help="file for all samples")
    parser.add_argument("--commit", default="")
    given = parser.parse_args()
    with heddle.LLM(given.model, device=given.device, max_batch=given.rows + 1) as llm:
        weights = Weights(llm, given.rank, given.dtype)
        samples = measure(llm, weights, given.rows, given.loads)
        size = weights.num_bytes(weights.make(0))
        device = llm.device
    print(f"{size / 1e6:.1f} MB, rank {given.rank}, beside {given.rows} requests; milliseconds")
    for name, values in samples.items():
        print(f"{name:12}  median {statistics.median(values):8.2f}  longest {max(values):8.2f}")
    ratio = max(samples["step, loads"]) / statistics.median(samples["step"])
    print(f"longest step while loading / median without: {ratio:.2f}")
    if given.json:
        what = (
            f"bench/load_adapter.py: milliseconds, an adapter of rank {given.rank} and {size / 1e6:.1f} MB"
            f" loaded from memory, beside {given.rows} requests"
        )
        records = [
            {"case": name, "median_ms": statistics.median(values), "longest_ms": max(values), "samples": values}
            for name, values in samples.items()
        ]
        record = {
            "what": what,
            "device": device,
            "commit": given.commit,
            "date": datetime.date.today().isoformat(),
            "records": records,
        }
        with open(given.json, "w") as file:
            json.dump(record, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
