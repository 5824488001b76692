#!/usr/bin/env python3
"""Asks the base model and the example adapters the same questions, in one batch, and prints both answers side by side.

  tools/demo.py [--heddle build/heddle] [--threads N]

The questions are the rows of examples/demo.jsonl that name an adapter. Lines are at most 80 columns wide.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
ADAPTERS = "examples/adapters"
MAX_TOKENS = 40  # of an answer; the adapters' are shorter
WIDTH = 38       # of a column
MAX_LINES = 4    # of a column

def questions():
    rows = [json.loads(line) for line in (ROOT / "examples/demo.jsonl").read_text().splitlines() if line]
    return [row for row in rows if row.get("adapter")]


def answers(heddle, rows, threads):
    """What heddle writes for the rows, in their order."""
    adapters = [x for name in sorted({r["adapter"] for r in rows if "adapter" in r})
                for x in ("--adapter", f"{name}={ADAPTERS}/{name}")]
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
        file.flush()
        command = [heddle, "generate", "--json", "--quiet", "--threads", str(threads), "--max-batch", str(len(rows)), *adapters,
                   "--prompts", file.name]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(done.returncode)  # heddle has said why
    return sorted(map(json.loads, done.stdout.splitlines()), key=lambda row: row["index"])


def column(answer):
    """The answer as lines of a column; control characters become spaces."""
    text = re.sub(r"[\x00-\x1f\x7f\s]+", " ", answer["text"]).strip()
    if answer["finish_reason"] == "length":
        text += " ..."
    return textwrap.wrap(text, WIDTH, max_lines=MAX_LINES, placeholder=" ...") or ["(nothing)"]


def print_side_by_side(left, right):
    for i in range(max(len(left), len(right))):
        cells = [lines[i] if i < len(lines) else "" for lines in (left, right)]
        print(f"  {cells[0]:{WIDTH}} {cells[1]}".rstrip())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heddle", default="build/heddle", help="the program")
    parser.add_argument("--threads", type=int, default=0, help="0: one per processor")
    arguments = parser.parse_args()

    asked = questions()
    rows = [{"prompt": row["prompt"], "max_tokens": MAX_TOKENS, **adapter}
            for row in asked for adapter in ({}, {"adapter": row["adapter"]})]
    print(f"{len(asked)} questions, each to the base model and to an adapter made for it, in one batch")
    print(f"of {len(rows)} rows. Dots: cut after {MAX_TOKENS} tokens or {MAX_LINES} lines.", flush=True)
    got = answers(os.path.abspath(arguments.heddle), rows, arguments.threads)
    for row, base, adapted in zip(asked, got[::2], got[1::2], strict=True):
        print(f"\nQuestion: {row['prompt']}")
        print_side_by_side(["base model:", *column(base)], [f"adapter {row['adapter']}:", *column(adapted)])


if __name__ == "__main__":
    main()
