"""What python_host_cost.py and python_gpu_cost.py share: rounds of calls, and a JSON file."""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import time
from collections.abc import Callable
from datetime import date
from typing import Any


def samples_of(
    call: Callable[[], Any], rounds: int, calls: int, wait: Callable[[], None] = lambda: None
) -> list[float]:
    """Microseconds per call in each round, after a call that is not counted.

    `wait` is called before each round and at the end.
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


def commit_of_tree() -> str:
    """Nothing where there is no git, or no .git."""
    command = ["git", "-C", str(pathlib.Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, check=False, capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def run(doc: str, measure: Callable[[], dict[str, Any]]) -> None:
    """Measures, and writes what is found where the command line has --json FILE."""
    parser = argparse.ArgumentParser(description=doc.partition("\n")[0])
    parser.add_argument("--json", help="file for the results")
    parser.add_argument("--commit", help="of this tree, where there is no .git")
    arguments = parser.parse_args()
    measured = {"commit": arguments.commit or commit_of_tree(), "date": f"{date.today()}"}
    found = measured | measure()
    if arguments.json:
        records = found.pop("records")
        head = "".join(f" {json.dumps(key)}: {json.dumps(value)},\n" for key, value in found.items())
        lines = ",\n".join(f"  {json.dumps(record)}" for record in records)
        pathlib.Path(arguments.json).write_text(f'{{\n{head} "records": [\n{lines}\n ]\n}}\n')
