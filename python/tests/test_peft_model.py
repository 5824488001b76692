"""heddle.integrations.peft with the example adapters on the real model. Needs gguf, too."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any

import frameworks
import pytest

if not frameworks.TORCH_WANTED:
    pytest.skip("skipped: HEDDLE_TEST_TORCH=0", allow_module_level=True)

import torch
from heddle.integrations.peft import accelerate

torch.set_num_threads(1)  # while other tests run, threads of torch that spin hold each other up

ROOT = pathlib.Path(__file__).resolve().parents[2]
NEW_TOKENS = 12


def recorded_rows() -> list[dict[str, Any]]:
    """The first recorded prompt of every example adapter, and one of the base model alone."""
    rows: dict[str, dict[str, Any]] = {}
    for row in json.loads((ROOT / "tests/golden/prompts.json").read_text()):
        if not row["raw"]:
            rows.setdefault(row["adapter"] or "__base__", row)
    return list(rows.values())


def test_the_example_adapters_answer_as_with_peft_alone() -> None:
    sys.path.insert(0, str(ROOT / "tests/golden"))
    import reference

    fetched = subprocess.run(
        [sys.executable, ROOT / "tools/fetch_model"], check=True, capture_output=True, text=True
    )
    gguf = fetched.stdout.strip()
    rows = recorded_rows()
    names = [row["adapter"] or "__base__" for row in rows]
    assert len(names) == 9
    adapters = [name for name in names if name != "__base__"]
    model = reference.with_adapters(
        reference.load_model(gguf), ROOT / "examples/adapters", adapters
    )
    end = model.config.eos_token_id

    longest = max(len(row["prompt_ids"]) for row in rows)
    prompts = torch.tensor(
        [[end] * (longest - len(row["prompt_ids"])) + row["prompt_ids"] for row in rows]
    )
    mask = torch.tensor(
        [[0] * (longest - len(row["prompt_ids"])) + [1] * len(row["prompt_ids"]) for row in rows]
    )

    def answers() -> list[list[int]]:
        tokens = model.generate(
            input_ids=prompts,
            attention_mask=mask,
            adapter_names=names,
            max_new_tokens=NEW_TOKENS,
            do_sample=False,
            eos_token_id=end,
            pad_token_id=end,
        )[:, longest:].tolist()
        return [row[: row.index(end)] if end in row else row for row in tokens]

    with_peft = answers()
    acceleration = accelerate(model)
    assert acceleration.left_to_peft == {}
    with_heddle = answers()
    assert with_heddle == with_peft
    assert with_heddle == [row["token_ids"][:NEW_TOKENS] for row in rows]
