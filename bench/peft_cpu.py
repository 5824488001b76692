"""Mixed batches of PEFT on the CPU, with heddle and without: writes bench/results/peft_cpu.json.

  peft_cpu.py --model FILE [--adapters DIR] [--cases 1 2 4 8 7+base] [--threads 2] [--rounds 3]
              [--json FILE]

Eight rows of SmolLM2-135M-Instruct in f32, shared out among the first N example adapters ("+base":
and the base model); a prompt of 32 tokens each, then greedy tokens one by one. What is timed is the
model's call alone. Cases that are not measured keep what the file has of the same machine and
versions. Needs torch, transformers, peft, gguf and heddle (PYTHONPATH=<build folder>/python).
"""

import argparse
import copy
import json
import os
import pathlib
import statistics
import sys
import time
from datetime import date

import heddle
import peft
import torch
import transformers
from heddle.integrations.peft import accelerate

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER / "peers"), str(FOLDER.parent / "tests/golden")]
import reference
import summarize
import workload

STEPS = 12


def rows_of(case, names):
    """The adapter of every row; "7+base" is the base model and seven adapters."""
    count, _, base = case.partition("+")
    chosen = ["__base__"] * bool(base) + names[: int(count)]
    return [chosen[row % len(chosen)] for row in range(workload.NUM_ROWS)]


@torch.no_grad()
def measure(models, rows, rounds):
    """Samples in milliseconds of every program's prompts and steps.

    The programs take turns step by step, so that what else the machine does strikes them alike.
    """
    prompts = torch.tensor(
        [workload.prompt_ids(row, workload.PROMPT_TOKENS) for row in range(len(rows))]
    )
    samples = {}

    def timed(who, part, **inputs):
        begin = time.perf_counter()
        out = models[who](adapter_names=rows, use_cache=True, **inputs)
        milliseconds = (time.perf_counter() - begin) * 1e3
        samples.setdefault((who, part), []).append(milliseconds)
        return out.logits[:, -1].argmax(-1, keepdim=True), out.past_key_values

    for round_number in range(rounds + 1):
        if round_number == 1:
            samples.clear()  # the first one was for warming up
        state = {who: timed(who, "prefill", input_ids=prompts) for who in models}
        for _ in range(STEPS):
            for who, (tokens, cache) in state.items():
                state[who] = timed(who, "step", input_ids=tokens, past_key_values=cache)
            assert torch.equal(state["peft"][0], state["heddle"][0]), f"{rows}: other tokens"
    return samples


def facts(threads):
    """What the samples depend on besides the case."""
    return {
        "commit": summarize.commit_of_tree(),
        "date": f"{date.today()}",
        "machine": summarize.machine_facts(threads)
        | {"omp_wait_policy": os.environ.get("OMP_WAIT_POLICY", "default")},
        "versions": {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "peft": peft.__version__,
        },
    }


def write(path, what, case, samples):
    """Puts the case's samples into the file; results of another machine or version leave it."""
    before = json.loads(path.read_text()) if path.exists() else {}
    same = all(before.get(key) == value for key, value in what.items())
    results = {entry["name"]: entry for entry in before["results"]} if same else {}
    for (who, part), values in samples.items():
        name = f"{who}/{part}_8_rows_{case}_adapters"
        milliseconds = [round(ms, 3) for ms in values]
        results[name] = {"name": name, "unit": "ms", "samples": milliseconds}
    path.write_text(json.dumps(what | {"results": list(results.values())}, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument(
        "--adapters", type=pathlib.Path, default=FOLDER.parent / "examples/adapters"
    )
    parser.add_argument("--cases", nargs="+", default=["1", "2", "4", "8", "7+base"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path, default=FOLDER / "results/peft_cpu.json")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    heddle.set_num_threads(args.threads)
    names = sorted(path.parent.name for path in args.adapters.glob("*/adapter_config.json"))
    plain = reference.with_adapters(reference.load_model(args.model), args.adapters, names)
    # Modules of its own on the same weights.
    fast = copy.deepcopy(plain, {id(weight): weight for weight in plain.parameters()})
    accelerate(fast)

    what = facts(args.threads)
    print("| adapters | PEFT, ms a step | heddle | ratio | PEFT, ms a prompt | heddle | ratio |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for case in args.cases:
        samples = measure({"peft": plain, "heddle": fast}, rows_of(case, names), args.rounds)
        write(args.json, what, case, samples)
        cells = [case]
        for part in ("step", "prefill"):
            before, after = (statistics.median(samples[who, part]) for who in ("peft", "heddle"))
            cells += [f"{before:.1f}", f"{after:.1f}", f"{before / after:.2f}"]
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
