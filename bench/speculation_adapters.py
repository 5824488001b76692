#!/usr/bin/env python3
"""What drafts gain on a GPU where rows have adapters: weights and adapters are made up.

Usage: speculation_adapters.py FOLDER [--json FILE] [--commit NAME] [--card NAME]. FOLDER gets a model in the shape of Llama-3.1-8B
(made_model_files.py; 14 GB) and eight adapters of rank 16 on all its products, and keeps them. Answers of 384 tokens to 16 random ones,
row i with adapter i % 8, `ngram` with 7 drafts a row:

  temperature 0  made weights soon repeat themselves, and most drafts are right
  temperature 2  none is

Prints tokens per second of steps that decode, of two runs of an engine, and the mean time of these steps.
Every answer is checked to be the one without drafts.
"""

from __future__ import annotations

import argparse
import datetime
import json
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import heddle
import made_model_files as made

LAYERS, RANK, ADAPTERS, DRAFTS, TOKENS, RUNS = 32, 16, 8, 7, 384, 2
KV = made.KV_HEADS * made.HEAD_DIM
SITES = {
    "self_attn.q_proj": (made.HIDDEN, made.HIDDEN), "self_attn.k_proj": (made.HIDDEN, KV), "self_attn.v_proj": (made.HIDDEN, KV),
    "self_attn.o_proj": (made.HIDDEN, made.HIDDEN), "mlp.gate_proj": (made.HIDDEN, made.INTERMEDIATE),
    "mlp.up_proj": (made.HIDDEN, made.INTERMEDIATE), "mlp.down_proj": (made.INTERMEDIATE, made.HIDDEN),
}  # in and out features


def write_adapter(folder: Path, draw: np.random.Generator) -> None:
    """As PEFT saves it, in bf16."""
    folder.mkdir(parents=True)
    targets = [site.split(".")[1] for site in SITES]
    settings = {"peft_type": "LORA", "r": RANK, "lora_alpha": RANK, "target_modules": targets, "base_model_name_or_path": "made"}
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    shapes = {
        f"base_model.model.model.layers.{layer}.{site}.lora_{half}.weight": shape
        for layer in range(LAYERS)
        for site, (rows, outs) in SITES.items()
        for half, shape in (("A", (RANK, rows)), ("B", (outs, RANK)))
    }
    header: dict[str, Any] = {}
    end = 0
    for name, shape in shapes.items():
        begin, end = end, end + 2 * shape[0] * shape[1]
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with open(folder / "adapter_model.safetensors", "wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for shape in shapes.values():
            values = draw.normal(0, 0.01, shape[0] * shape[1]).astype(np.float32)
            file.write((values.view(np.uint32) >> 16).astype(np.uint16).tobytes())


def measure(model: Path, adapters: dict[str, Path], rows: int, temperature: float) -> list[dict[str, Any]]:
    draw = random.Random(rows)
    prompts = [[draw.randrange(1000, 30000) for _ in range(16)] for _ in range(rows)]
    names = [f"{i % ADAPTERS}" for i in range(rows)]
    want: list[Any] = []
    records: list[dict[str, Any]] = []
    for method in ("off", "ngram"):
        with heddle.LLM(model, adapters, device="cuda", max_batch=rows, speculate=method, progress=False,
                        draft_tokens=0 if method == "off" else DRAFTS) as llm:
            rates = []
            for _ in range(RUNS):
                before = llm.stats()
                answers = llm.generate(prompts, adapter=names, max_tokens=TOKENS, ignore_end=True, temperature=temperature, seed=1)
                got = [(answer.token_ids, answer.logprobs) for answer in answers]
                after = llm.stats()
                want = want or got
                assert got == want, (rows, temperature, method)
                seconds, steps = after.decode_seconds - before.decode_seconds, after.decode_steps - before.decode_steps
                rates.append((after.decode_tokens - before.decode_tokens) / seconds)
        records.append({
            "rows": rows, "adapters": min(rows, ADAPTERS), "temperature": temperature, "method": method, "samples": rates,
            "tokens_per_s": max(rates), "ms_per_step": 1e3 * seconds / steps, "steps": steps,
            "drafted": after.drafted_tokens - before.drafted_tokens, "accepted": after.accepted_tokens - before.accepted_tokens,
        })
    records[1]["times_off"] = records[1]["tokens_per_s"] / records[0]["tokens_per_s"]
    print(*records, sep="\n", flush=True)
    return records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--commit", default="")
    parser.add_argument("--card", default="", help="what the device is called in the record")
    given = parser.parse_args()
    draw = np.random.default_rng(1)
    model = given.folder / "model"
    if not model.exists():
        made.write_folder(model, LAYERS, draw)
    adapters = {f"{i}": given.folder / f"adapter{i}" for i in range(ADAPTERS)}
    for folder in adapters.values():
        if not folder.exists():
            write_adapter(folder, draw)
    records = [one for rows in given.rows for temperature in (0.0, 2.0) for one in measure(model, adapters, rows, temperature)]
    if given.json:
        record = {
            "what": "bench/speculation_adapters.py: made weights in the shape of Llama-3.1-8B, adapters of rank 16 on all products, "
                    "7 drafts a row; tokens per second and milliseconds of steps that decode",
            "device": given.card, "commit": given.commit, "date": datetime.date.today().isoformat(), "records": records,
        }
        given.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
