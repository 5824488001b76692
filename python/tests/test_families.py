"""Every family against transformers in f32: folders, adapters, greedy answers, batches, and a mistake in each trait."""

from __future__ import annotations

import json
import os
import pathlib
import random
import subprocess
from typing import Any

import pytest
from family_models import CASES, SMALL, VOCAB, Case, make_adapter, make_model, save
from frameworks import TORCH_WANTED

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = pathlib.Path(os.environ.get("HEDDLE_BUILD_DIR", ROOT / "build")) / "tests" / "heddle_model_logits"
TOLERANCE = 1e-4  # of the largest logit
STEPS = 64
# Tokens of prompts: one, fewer than any window, more, and more than any original context.
LENGTHS = (1, 5, 30, 55)

pytestmark = pytest.mark.skipif(not TORCH_WANTED, reason="skipped: HEDDLE_TEST_TORCH=0")


def seed_of_run() -> int:
    seed = random.SystemRandom().randrange(1 << 30)
    print(f"seed {seed}")
    return seed


def run(model: pathlib.Path, rows: list[dict[str, Any]], *options: str) -> Any:
    result = subprocess.run([PROGRAM, model, *options], input=json.dumps(rows), capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise RuntimeError(result.stderr.strip())
    return json.loads(result.stdout)


def make_rows(seed: int, adapters: tuple[str | None, ...] = (None,)) -> list[dict[str, Any]]:
    numbers = random.Random(seed)
    return [
        {"tokens": [numbers.randrange(3, VOCAB) for _ in range(length)], "adapter": adapter}
        for length in LENGTHS
        for adapter in adapters
    ]


def expected(model: Any, tokens: list[int], steps: int = STEPS) -> tuple[list[float], list[int]]:
    """The logits after the last token, and a greedy answer."""
    import torch

    decoder = getattr(model, "base_model", model)
    decoder = getattr(decoder, "model", decoder)
    decoder = getattr(decoder, "model", decoder)
    # "dynamic" rotation remembers the longest sequence of earlier calls.
    decoder.rotary_emb = type(decoder.rotary_emb)(model.config)
    with torch.no_grad():
        ids = torch.tensor([tokens])
        logits = model(input_ids=ids).logits[0, -1].tolist()
        if steps == 0:
            return logits, []
        answer = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=steps, do_sample=False)
    return logits, answer[0, len(tokens):].tolist()


def error_of(ours: list[float], theirs: list[float]) -> float:
    return max(abs(a - b) for a, b in zip(ours, theirs, strict=True)) / max(map(abs, theirs))


def check_rows(result: Any, rows: list[dict[str, Any]], models: dict[str | None, Any]) -> None:
    for row, got in zip(rows, result["rows"], strict=True):
        logits, answer = expected(models[row["adapter"]], row["tokens"])
        where = f"{len(row['tokens'])} tokens, adapter {row['adapter']}"
        assert error_of(got["logits"], logits) <= TOLERANCE, where
        assert got["answer"] == answer, where
        assert got["same_bits_alone"], where


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_folder(case: Case, tmp_path: pathlib.Path) -> None:
    seed = seed_of_run()
    model = make_model(case, seed)
    folder = save(model, tmp_path / "model", max_shard_size="20KB" if seed % 2 else "1GB")
    rows = make_rows(seed)
    result = run(folder, rows, "--steps", str(STEPS))
    check_rows(result, rows, {None: model})
    seen = {}
    for trait in result["traits"]:
        try:
            wrong = run(folder, rows, "--mutate", trait)
        except RuntimeError:  # the tensors do not fit the mistake
            seen[trait] = True
            continue
        errors = [error_of(w["logits"], r["logits"]) for w, r in zip(wrong["rows"], result["rows"], strict=True)]
        seen[trait] = not max(errors) <= TOLERANCE
    assert seen and all(seen.values()), f"mistakes that the comparison does not see: {seen}"
