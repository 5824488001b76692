"""Mixed batches of PEFT on the CPU, with heddle and without: writes bench/results/peft_cpu.json.

  peft_cpu.py --model FILE [--adapters DIR] [--counts 1 2 4 8] [--threads 2] [--rounds 3]
              [--json FILE]

Eight rows of SmolLM2-135M-Instruct in f32, each with one of the first N example adapters; a prompt
of 32 tokens, then greedy tokens one by one. PEFT and heddle take turns; what is timed is the
model's call alone. Needs torch, transformers, peft, gguf and heddle (PYTHONPATH=<build folder>/python).
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import time

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

STEPS = 8


@torch.no_grad()
def answer(model, prompts, rows):
    """(seconds of the prompt, seconds of each step, tokens [rows, STEPS])"""

    def timed(**inputs):
        begin = time.perf_counter()
        out = model(adapter_names=rows, use_cache=True, **inputs)
        return out, time.perf_counter() - begin

    out, prefill = timed(input_ids=prompts)
    tokens, steps = [], []
    for _ in range(STEPS):
        tokens.append(out.logits[:, -1].argmax(-1, keepdim=True))
        out, seconds = timed(input_ids=tokens[-1], past_key_values=out.past_key_values)
        steps.append(seconds)
    return prefill, steps, torch.cat(tokens, 1)


def measure(model, names, count, rounds):
    """One entry per program and part: samples in milliseconds."""
    rows = [names[i % count] for i in range(workload.NUM_ROWS)]
    prompts = torch.tensor(
        [workload.prompt_ids(row, workload.PROMPT_TOKENS) for row in range(workload.NUM_ROWS)]
    )
    samples = {f"{who}/{part}": [] for who in ("peft", "heddle") for part in ("prefill", "step")}
    for round_number in range(rounds + 1):  # the first one is for warming up
        tokens = {}
        for who in ("peft", "heddle"):
            if who == "heddle":
                assert accelerate(model) is True
            prefill, steps, tokens[who] = answer(model, prompts, rows)
            if who == "heddle":
                assert accelerate(model) is False
            if round_number > 0:
                samples[f"{who}/prefill"].append(prefill * 1e3)
                samples[f"{who}/step"] += [seconds * 1e3 for seconds in steps]
        assert torch.equal(tokens["peft"], tokens["heddle"]), f"{count} adapters: other tokens"
    return [
        {
            "name": f"{name}_8_rows_{count}_adapters",
            "unit": "ms",
            "samples": [round(ms, 3) for ms in values],
        }
        for name, values in samples.items()
    ]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument(
        "--adapters", type=pathlib.Path, default=FOLDER.parent / "examples/adapters"
    )
    parser.add_argument("--counts", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path, default=FOLDER / "results/peft_cpu.json")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    heddle.set_num_threads(args.threads)
    names = sorted(path.parent.name for path in args.adapters.glob("*/adapter_config.json"))
    model = reference.with_adapters(reference.load_model(args.model), args.adapters, names)
    results = []
    print(
        "| adapters | PEFT, ms a step | heddle | ratio | PEFT, ms for the prompt | heddle | ratio |"
    )
    print("|---|---|---|---|---|---|---|", flush=True)
    for count in args.counts:
        entries = measure(model, names, count, args.rounds)
        results += entries
        median = {
            entry["name"].split("_8_rows")[0]: statistics.median(entry["samples"])
            for entry in entries
        }
        cells = [str(count)]
        for part in ("step", "prefill"):
            before, after = median[f"peft/{part}"], median[f"heddle/{part}"]
            cells += [f"{before:.0f}", f"{after:.0f}", f"{before / after:.2f}"]
        print("| " + " | ".join(cells) + " |", flush=True)
    versions = {
        "heddle": heddle.__version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "peft": peft.__version__,
    }
    machine = summarize.machine_facts(args.threads) | {
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY", "default")
    }
    args.json.write_text(
        json.dumps({"machine": machine, "versions": versions, "results": results}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
