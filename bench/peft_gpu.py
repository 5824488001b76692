"""Mixed batches of PEFT on a GPU, with heddle and without.

  peft_gpu.py [--json FILE] [--cases base 1 2 4 8] [--rounds 5] [--commit NAME] [--quick]

A random Llama of 16 layers and hidden size 2048 in bf16 (nothing is fetched) with eight adapters of
rank 16 on all linear layers, as PEFT loads files in bf16 by default: in f32, with values that bf16
holds. Eight rows, shared out among the first N adapters ("base": none); a prompt of 128 random
tokens each, then single tokens with the cache. What is timed is the model's call alone, from an idle
GPU until it is idle again; PEFT and heddle take turns on the same weights and tokens. PEFT computes
adapters in f32 then, and heddle with copies in bf16. Their logits are compared, and a difference
beyond rounding is an error.
Needs torch, transformers, peft, NumPy and heddle (PYTHONPATH=<build folder>/python). --quick: a tiny
model; --device cpu tries the script without a GPU.
"""

from __future__ import annotations

import argparse
import copy
import json
import pathlib
import platform
import statistics
import subprocess
import time
from datetime import date
from typing import Any

import peft
import torch
import transformers
from heddle.integrations.peft import accelerate

ROOT = pathlib.Path(__file__).resolve().parents[1]
ROWS, ADAPTERS, RANK = 8, 8, 16
LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
SIZES = {
    "vocab_size": 32000,
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
}
QUICK_SIZES = SIZES | {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2}
PROMPT_TOKENS, STEPS = 128, 32
LARGEST_ERROR = 0.1  # of logits, as a part of the largest: what roundings to bf16 come to


def model_with_adapters(sizes: dict[str, int], device: str) -> Any:
    """A random model; adapters add about as much as a tenth of what their layers give."""
    base = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes))
    with torch.no_grad():
        base.to(device, torch.bfloat16)
        for weight in base.parameters():
            if weight.ndim == 2:
                weight.normal_(std=weight.shape[1] ** -0.5)
    config = peft.LoraConfig(
        r=RANK, lora_alpha=2 * RANK, target_modules=LINEARS, inference_mode=True
    )
    model = peft.get_peft_model(base, config, adapter_name="adapter_0")
    for number in range(1, ADAPTERS):
        model.add_adapter(f"adapter_{number}", config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_" in name:
                assert weight.dtype == torch.float32
                part = 0.05 if "lora_B" in name else 1
                weight.normal_(std=part * weight.shape[1] ** -0.5)
                weight.copy_(weight.bfloat16())
    return model.eval()


def rows_of(case: str) -> list[str]:
    """The adapter of every row."""
    if case == "base":
        return ["__base__"] * ROWS
    return [f"adapter_{row % int(case)}" for row in range(ROWS)]


def wait(device: str) -> None:
    """Until the GPU is idle."""
    if device == "cuda":
        torch.cuda.synchronize()


@torch.no_grad()
def measure(
    models: dict[str, Any], rows: list[str], rounds: int, device: str
) -> tuple[dict[tuple[str, str], list[float]], float]:
    """Milliseconds of every program's prompts and steps, and the largest difference of logits.

    The programs take turns step by step, so that what else the machine does strikes them alike.
    """
    vocabulary = models["peft"].config.vocab_size
    tokens = torch.randint(0, vocabulary, (ROWS, PROMPT_TOKENS + STEPS)).to(device)
    samples: dict[tuple[str, str], list[float]] = {}
    error = 0.0

    def timed(who: str, part: str, **inputs: Any) -> Any:
        wait(device)
        begin = time.perf_counter()
        out = models[who](adapter_names=rows, use_cache=True, **inputs)
        wait(device)
        samples.setdefault((who, part), []).append((time.perf_counter() - begin) * 1e3)
        return out

    for round_number in range(rounds + 1):
        if round_number == 1:
            samples.clear()  # the first one was for warming up
        outs = {who: timed(who, "prefill", input_ids=tokens[:, :PROMPT_TOKENS]) for who in models}
        for step in range(PROMPT_TOKENS, PROMPT_TOKENS + STEPS):
            got, want = (outs[who].logits.float() for who in ("heddle", "peft"))
            error = max(error, ((got - want).abs().max() / want.abs().max()).item())
            for who, out in outs.items():
                outs[who] = timed(
                    who,
                    "step",
                    input_ids=tokens[:, step : step + 1],
                    past_key_values=out.past_key_values,
                )
    return samples, error


def commit_of_tree() -> str:
    """Nothing where there is no git, or no .git."""
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    try:
        return subprocess.run(command, check=False, capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def facts(arguments: argparse.Namespace, sizes: dict[str, int]) -> dict[str, Any]:
    """What the samples depend on besides the case."""
    is_gpu = arguments.device == "cuda"
    return {
        "commit": arguments.commit or commit_of_tree(),
        "date": f"{date.today()}",
        "device": torch.cuda.get_device_name() if is_gpu else platform.processor(),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "peft": peft.__version__,
        },
        "model": sizes
        | {"dtype": "bf16", "adapters_dtype": "f32", "rank": RANK, "target_modules": LINEARS},
        "rows": ROWS,
        "prompt_tokens": PROMPT_TOKENS,
    }


def main() -> None:
    """Measures all cases, prints a table, and writes the file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--cases", nargs="+", default=["base", "1", "2", "4", "8"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--commit", help="of this tree, where there is no .git")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()

    sizes = QUICK_SIZES if arguments.quick else SIZES
    plain = model_with_adapters(sizes, arguments.device)
    # Modules of its own on the same weights.
    fast = copy.deepcopy(plain, {id(weight): weight for weight in plain.parameters()})
    acceleration = accelerate(fast)
    report = facts(arguments, sizes) | {"relative_errors": {}, "results": []}
    print("| adapters | PEFT, ms a step | heddle | ratio | PEFT, ms a prompt | heddle | ratio |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for case in arguments.cases:
        models = {"peft": plain, "heddle": fast}
        samples, error = measure(models, rows_of(case), arguments.rounds, arguments.device)
        if not error <= LARGEST_ERROR:
            raise SystemExit(f"case {case}: logits differ by {error:.3f} of the largest")
        for (who, part), values in samples.items():
            name = f"{who}/{part}_{ROWS}_rows_{case}_adapters"
            values = [round(ms, 4) for ms in values]
            report["results"].append({"name": name, "unit": "ms", "samples": values})
        report["relative_errors"][f"{case}_adapters"] = round(error, 5)
        cells = [case]
        for part in ("step", "prefill"):
            before, after = (statistics.median(samples[who, part]) for who in ("peft", "heddle"))
            cells += [f"{before:.2f}", f"{after:.2f}", f"{before / after:.2f}"]
        print("| " + " | ".join(cells) + " |", flush=True)
    if acceleration.left_to_peft:
        raise SystemExit(str(acceleration))
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
