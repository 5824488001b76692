"""What python_host_cost.py and python_gpu_cost.py share: rounds of calls, and a JSON file."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any


def samples_of(
    call: Callable[[], Any], rounds: int, calls: int, wait: Callable[[], None] = lambda: None
) -> list[float]:
    """Microseconds per call in each round, after a call that is not counted.

    `wait` is called in front of each round and at the end.
    """
    call()
    samples = []
    for _ in range(rounds):
        wait()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        samples.append((time.perf_counter() - start) / calls * 1e6)
    wait()
    return samples


def run(doc: str, measure: Callable[[], dict[str, Any]]) -> None:
    """Measures, and writes what is found where the command line has --json FILE."""
    parser = argparse.ArgumentParser(description=doc.partition("\n")[0])
    parser.add_argument("--json", help="file for the results")
    arguments = parser.parse_args()
    found = measure()
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(found, file, indent=1)
            file.write("\n")
