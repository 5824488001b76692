#!/usr/bin/env python3
"""How long many adapters take to judge one prompt in one request, against one adapter alone.

Usage: judge_prompt.py MODEL [--device cuda] [--tokens 4000] [--adapters 64] [--rank 16]
[--rounds 5] [--json FILE] [--commit NAME]. MODEL is what heddle.LLM takes. Each round has a new
prompt of random tokens, which ends with the invocation of the aLoRAs, and asks for one token of:

  one aLoRA      one of the adapters
  aLoRAs         all of them, by `each_adapter`: up to the invocation they share the prompt's pages
  one LoRA       the same weights as plain LoRA, one of them
  LoRAs          all of these, which share nothing

Prints the median of milliseconds of each, and how many times longer all take than one. Every answer
is checked to be the one that its adapter gives in a request of its own.
"""

from __future__ import annotations

import argparse
import datetime
import json
import random
import statistics
import time
from typing import Any

import heddle
from load_adapter import Weights

INVOCATION = [11, 12, 13]


def load(llm: heddle.LLM, count: int, rank: int, dtype: str) -> None:
    """judge/0, judge/1, ... are aLoRAs, plain/0, plain/1, ... LoRAs of the same weights."""
    weights = Weights(llm, rank, dtype)
    for i in range(count):
        tensors = weights.make(i)
        llm.load_adapter(f"plain/{i}", tensors, weights.config)
        config = {**weights.config, "alora_invocation_tokens": INVOCATION}
        llm.load_adapter(f"judge/{i}", tensors, config)


def judge(llm: heddle.LLM, prompt: list[int], names: list[str], salt: str) -> tuple[float, list[Any]]:
    """Milliseconds, and the answers."""
    begin = time.perf_counter()
    answers = llm.generate(
        prompt, each_adapter=names, max_tokens=1, ignore_end=True, cache_salt=salt, temperature=0
    )
    took = 1e3 * (time.perf_counter() - begin)
    return took, answers if isinstance(answers, list) else [answers]


def round_of(llm: heddle.LLM, tokens: int, count: int, number: int) -> dict[str, float]:
    draw = random.Random(number)
    prompt = [draw.randrange(100, 1000) for _ in range(tokens - len(INVOCATION))] + INVOCATION
    took = {}
    for kind, label in (("judge", "aLoRA"), ("plain", "LoRA")):
        names = [f"{kind}/{i}" for i in range(count)]
        took[f"one {label}"], one = judge(llm, prompt, names[:1], f"{kind} one {number}")
        took[f"{label}s"], every = judge(llm, prompt, names, f"{kind} all {number}")
        assert every[0].token_ids == one[0].token_ids and every[0].logprobs == one[0].logprobs
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--device", default=None)
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--adapters", type=int, default=64)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--commit", default="")
    given = parser.parse_args()

    with heddle.LLM(given.model, device=given.device, max_batch=given.adapters) as llm:
        load(llm, given.adapters, given.rank, given.dtype)
        rounds = [round_of(llm, given.tokens, given.adapters, i) for i in range(given.rounds + 1)][1:]
        device = llm.device
    samples = {name: [one[name] for one in rounds] for name in rounds[0]}
    middle = {name: statistics.median(values) for name, values in samples.items()}
    for name, value in middle.items():
        print(f"{name:10} {value:10.2f} ms")
    for label in ("aLoRA", "LoRA"):
        print(f"{given.adapters} {label}s take {middle[label + 's'] / middle['one ' + label]:.2f} times as long as one")
    if given.json:
        what = f"bench/judge_prompt.py: milliseconds, {given.adapters} adapters of rank {given.rank} on a prompt of {given.tokens} tokens"
        records = [{"case": name, "ms": middle[name], "samples": values} for name, values in samples.items()]
        record = {"what": what, "device": device, "commit": given.commit, "date": datetime.date.today().isoformat(), "records": records}
        with open(given.json, "w") as file:
            json.dump(record, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
