#!/usr/bin/env python3
"""What drafts gain on the example adapters, and what they cost where they are never right.

Usage: speculation.py MODEL [--device cuda] [--rows 1 8] [--threads 2] [--samples 3] [--json FILE]
[--methods ngram ...] [--prompt-tokens 16] [--draft-model PATH] [--commit NAME] [--card NAME]. MODEL is
what heddle.LLM takes: that of the demo. Each sample is an engine of its own, so that it remembers no
answer; samples of the methods take turns.

  sql, ...     each evaluation prompt of the adapter once, greedy, ROWS at a time
  random       answers to random tokens at a temperature of 2, which no draft foresees
  greedy       the same prompts, greedy: made weights soon repeat themselves

Prints tokens per second of steps that decode: medians, and how many times those without drafts.
`costs` are those of steps as the engine measured them, `ceiling` what they would allow if every
draft were right.
Every answer is checked to be the one without drafts.
"""

from __future__ import annotations

import argparse
import datetime
import json
import random
import re
import statistics
from pathlib import Path
from typing import Any

import heddle

ADAPTERS = Path(__file__).parents[1] / "examples" / "adapters"
TASKS, RANDOM = ("sql", "person-json", "shell"), ("random", "greedy")
NOTE = re.compile(r"steps of (.*) tokens take (.*) ms")


def answers_of(llm: heddle.LLM, case: str, rows: int, prompt_tokens: int) -> list[Any]:
    if case in RANDOM:
        draw = random.Random(1)
        prompts = [[draw.randrange(1000, 30000) for _ in range(prompt_tokens)] for _ in range(rows)]
        heat = 2.0 if case == "random" else 0.0
        return list(llm.generate(prompts, max_tokens=384, ignore_end=True, temperature=heat, seed=1))
    lines = (ADAPTERS / case / "eval.jsonl").read_text().splitlines()
    chats = [[{"role": "user", "content": json.loads(line)["prompt"]}] for line in lines]
    return list(llm.chat(chats, adapter=case, max_tokens=64, temperature=0))


def costs_of(llm: heddle.LLM) -> list[tuple[float, float]]:
    """Tokens and milliseconds of the steps that the engine has measured."""
    for note in llm.model.notes:
        if found := NOTE.match(note):
            counts, times = ([float(x) for x in part.split(", ")] for part in found.groups())
            return list(zip(counts, times))
    return []


def ceiling(costs: list[tuple[float, float]]) -> float:
    """Of one row: how many times its tokens per second without drafts."""
    return max(count * costs[0][1] / time for count, time in costs if count <= 16)


def sample(given: argparse.Namespace, case: str, rows: int, method: str) -> dict[str, Any]:
    adapters = {} if case in RANDOM else {case: ADAPTERS / case}
    threads = {"num_threads": given.threads} if given.threads else {}
    with heddle.LLM(
        given.model, adapters, device=given.device, max_batch=rows, speculate=method, progress=False,
        draft_model=given.draft_model if method == "model" else None, **threads
    ) as llm:
        answers = answers_of(llm, case, rows, given.prompt_tokens)
        stats = llm.stats()
        return {
            "device": llm.device,
            "answers": [(answer.token_ids, answer.logprobs) for answer in answers],
            "tokens_per_s": stats.decode_tokens / stats.decode_seconds,
            "drafted": stats.drafted_tokens,
            "accepted": stats.accepted_tokens,
            "costs": costs_of(llm),
        }


def measure(given: argparse.Namespace, case: str, rows: int) -> list[dict[str, Any]]:
    taken: dict[str, list[dict[str, Any]]] = {method: [] for method in given.methods}
    for _ in range(given.samples):
        for method in given.methods:
            taken[method].append(sample(given, case, rows, method))
    records = []
    for method, samples in taken.items():
        assert all(one["answers"] == taken["off"][0]["answers"] for one in samples), (case, rows, method)
        rates = [one["tokens_per_s"] for one in samples]
        record = {
            "case": case,
            "rows": rows,
            "method": method,
            "tokens_per_s": statistics.median(rates),
            "samples": rates,
            "drafted": samples[-1]["drafted"],
            "accepted": samples[-1]["accepted"],
        }
        if method != "off":
            record["times_off"] = record["tokens_per_s"] / records[0]["tokens_per_s"]
            record["ceiling"] = statistics.median(ceiling(one["costs"]) for one in samples)
            record["costs"] = samples[0]["costs"]
        records.append(record)
        print({key: value for key, value in record.items() if key != "samples"}, flush=True)
    given.found = taken["off"][0]["device"]
    return records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--device", default=None)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--cases", nargs="+", choices=TASKS + RANDOM, default=list(TASKS + RANDOM[:1]))
    parser.add_argument("--methods", nargs="+", default=["ngram", "suffix"], help="next to off")
    parser.add_argument("--prompt-tokens", type=int, default=16, help="of random and greedy")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--draft-model", metavar="PATH", help="that drafts with the method model")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--commit", default="")
    parser.add_argument("--card", default="", help="what the device is called in the record")
    given = parser.parse_args()
    given.methods = ["off", *given.methods, *(["model"] if given.draft_model else [])]
    records = [record for case in given.cases for rows in given.rows for record in measure(given, case, rows)]
    if given.json:
        record = {
            "what": f"bench/speculation.py {Path(given.model).name}: tokens per second of steps that decode",
            "device": given.card or f"{given.found}, {given.threads} threads",
            "commit": given.commit,
            "date": datetime.date.today().isoformat(),
            "records": records,
        }
        Path(given.json).write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
