#!/usr/bin/env python3
"""Runs the eval rows of every example adapter through the command line in mixed batches and compares the accuracy.

  python3 tests/run_eval.py --heddle build/heddle --adapters examples/adapters [--model FILE] [--pairs 200]
                            [--max-batch 16] [--threads 2] [--device auto] [--skip-base]

Rows of all adapters are interleaved, so that every batch mixes them. Then the same prompts go to the base
model. Without --pairs the rows are those of eval.jsonl (50 per adapter), and the accuracy must also be the one that
transformers reaches on the same rows (golden/eval.json); --pairs N takes the first N test pairs of tasks.py instead:
200 are the ones that report.json speaks of. Right means that the stripped text equals the answer.
Standard library only; exit code 1 when an accuracy is off by more than 0.01.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

TOLERANCE = 0.01
MAX_TOKENS = 64  # as in train.py, which measured the accuracies of report.json


def load_rows(adapters, pairs):
    """{adapter: [{prompt, answer}]} of eval.jsonl, or of the generator if a count is given."""
    names = sorted(path.parent.name for path in adapters.glob("*/eval.jsonl"))
    if not pairs:
        return {name: [json.loads(line) for line in (adapters / name / "eval.jsonl").read_text().splitlines()]
                for name in names}
    sys.path.insert(0, str(adapters))
    import tasks
    return {name: [dict(prompt=p, answer=a) for p, a in tasks.pairs(name, pairs, "test")] for name in names}


def interleaved(rows_by_name):
    """(adapter, row) pairs: the first row of every adapter, then the second of every one, and so on."""
    longest = max(map(len, rows_by_name.values()))
    return [(name, rows[i]) for i in range(longest) for name, rows in rows_by_name.items() if i < len(rows)]


def generate(args, requests):
    """The program's answer objects, in the order of the requests."""
    command = [args.heddle, "generate", "--json", "--threads", str(args.threads), "--max-batch", str(args.max_batch),
               "--device", args.device]
    command += ["--model", args.model] if args.model else []
    for name in sorted({r["adapter"] for r in requests if "adapter" in r}):
        command += ["--adapter", f"{name}={args.adapters / name}"]
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.writelines(json.dumps(r) + "\n" for r in requests)
        file.flush()
        done = subprocess.run(command + ["--prompts", file.name], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"heddle generate ended with exit code {done.returncode}")
    answers = [json.loads(line) for line in done.stdout.split("\n") if line]  # splitlines would cut at U+2028 too
    answers.sort(key=lambda a: a["index"])
    if [a["index"] for a in answers] != list(range(len(requests))):
        sys.exit(f"{len(requests)} rows were asked and {len(answers)} came back")
    for request, answer in zip(requests, answers):
        if answer["adapter"] != request.get("adapter") or answer["error"] is not None:
            sys.exit(f"row {answer['index']} has adapter {answer['adapter']} and error {answer['error']}")
    return answers


def count_right(args, mixed, with_adapter):
    """{adapter: right answers}, from one run over all rows."""
    requests = [dict(prompt=row["prompt"], max_tokens=MAX_TOKENS, **({"adapter": name} if with_adapter else {}))
                for name, row in mixed]
    right = dict.fromkeys((name for name, _ in mixed), 0)
    for (name, row), answer in zip(mixed, generate(args, requests)):
        right[name] += answer["text"].strip() == row["answer"]
    return right


def compare(args, title, right, rows_by_name, recorded):
    """Prints a line per adapter; the number of adapters whose accuracy is off."""
    failures = 0
    for name, count in right.items():
        num_rows = len(rows_by_name[name])
        wanted = {"report.json": json.loads((args.adapters / name / "report.json").read_text())[f"{title}_accuracy"]}
        if recorded:
            wanted["transformers"] = recorded[name][f"{title}_right"] / recorded[name]["rows"]
        good = all(abs(count / num_rows - accuracy) <= TOLERANCE for accuracy in wanted.values())
        failures += not good
        print(f"{'ok  ' if good else 'FAIL'} {title:8} {name:12} {count:3} of {num_rows} right = {count / num_rows:.3f} ("
              + ", ".join(f"{source} {accuracy:.3f}" for source, accuracy in wanted.items()) + ")", flush=True)
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heddle", required=True)
    parser.add_argument("--adapters", required=True, type=pathlib.Path)
    parser.add_argument("--model", help="GGUF file; the program's default when not given")
    parser.add_argument("--pairs", type=int, help="pairs per adapter from tasks.py instead of eval.jsonl")
    parser.add_argument("--max-batch", type=int, default=16)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="auto", help="cpu, cuda, or a GPU where there is one (default)")
    parser.add_argument("--skip-base", action="store_true", help="leave out the run without adapters")
    args = parser.parse_args()

    rows_by_name = load_rows(args.adapters, args.pairs)
    recorded = None if args.pairs else json.loads(
        pathlib.Path(__file__).with_name("golden").joinpath("eval.json").read_text())
    mixed = interleaved(rows_by_name)
    failures = compare(args, "adapter", count_right(args, mixed, True), rows_by_name, recorded)
    if not args.skip_base:
        failures += compare(args, "base", count_right(args, mixed, False), rows_by_name, recorded)
    print(f"{len(mixed)} rows, {failures} accuracies off by more than {TOLERANCE}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
