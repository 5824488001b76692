"""LoRA adapters in GGUF files, against PEFT, on a base model in a folder and in a GGUF file."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
from adapter_kinds import LINEAR, VOCABULARY, Kind, make
from family_models import CASES, make_model, save
from frameworks import TORCH_WANTED
from test_families import TOLERANCE, error_of, one_thread, run, seed_of_run

ROWS = [[5, 9, 4, 11, 3, 12, 40], [7, 8, 9, 10]]
KINDS = {
    "LoRA": Kind("LoRA", {"target_modules": LINEAR + VOCABULARY}, {}),
    "LoRA, tied": Kind("LoRA", {"target_modules": LINEAR + ["embed_tokens"]}, {}),  # there is no head's tensor then
    "aLoRA": Kind("aLoRA", {"target_modules": LINEAR, "alora_invocation_tokens": [11, 3, 12]}, {}),
}

pytestmark = pytest.mark.skipif(not TORCH_WANTED, reason="skipped: HEDDLE_TEST_TORCH=0")
_ = one_thread  # a fixture of every test here


def check(adapted: Any, model: pathlib.Path, adapter: pathlib.Path) -> None:
    import torch

    rows = [{"tokens": tokens, "adapter": name} for tokens in ROWS for name in ("a", None)]
    for row, got in zip(rows, run(model, rows, "--adapter", f"a={adapter}")["rows"], strict=True):
        assert got["same_bits_alone"]
        if row["adapter"]:
            with torch.no_grad():
                logits = adapted(input_ids=torch.tensor([row["tokens"]])).logits[0, -1].tolist()
            assert error_of(got["logits"], logits) <= TOLERANCE


@pytest.mark.parametrize(("name", "kind"), [("llama", "LoRA"), ("llama", "aLoRA"), ("qwen2", "LoRA"), ("gemma2", "LoRA, tied"),
                                            ("phi3", "LoRA")])
def test_logits_are_pefts(name: str, kind: str, tmp_path: pathlib.Path) -> None:
    from family_gguf import write_gguf
    from lora_gguf import write_lora

    seed = seed_of_run()
    case = next(case for case in CASES if case.name == name)
    model = make_model(case, seed)
    adapted = make(model, KINDS[kind], tmp_path / "adapter", seed)
    adapter = write_lora(adapted, case.gguf, tmp_path / "adapter.gguf", "F32" if kind == "aLoRA" else "F16")
    check(adapted, save(model, tmp_path / "model"), adapter)
    check(adapted, write_gguf(model, case.gguf, tmp_path / "model.gguf"), adapter)


def test_nan_is_refused_by_name(tmp_path: pathlib.Path) -> None:
    import torch
    from family_gguf import write_gguf
    from lora_gguf import write_lora

    model = make_model(CASES[0], 1)
    path = write_gguf(model, "llama", tmp_path / "model.gguf")
    adapted = make(model, KINDS["LoRA"], tmp_path / "adapter", 1)
    with torch.no_grad():
        for name, values in adapted.named_parameters():
            if "layers.1.mlp.down_proj.lora_B" in name:
                values[2, 1] = float("nan")
    file = write_lora(adapted, "llama", tmp_path / "adapter.gguf", "F16")
    with pytest.raises(RuntimeError, match=r"tensor 'blk.1.ffn_down.weight.lora_b' has NaN at \[2, 1\]"):
        run(path, [], "--adapter", f"a={file}")


def test_what_is_no_lora_is_refused(tmp_path: pathlib.Path) -> None:
    from family_gguf import write_gguf
    from lora_gguf import write_lora

    model = make_model(CASES[0], 1)
    path = write_gguf(model, "llama", tmp_path / "model.gguf")
    adapted = make(model, KINDS["LoRA"], tmp_path / "adapter", 1)
    for changes, sentence in (({"type": "model"}, 'general.type is \'model\', supported: "adapter"'),
                              ({"adapter_type": "control"}, 'adapter.type is \'control\', supported: "lora"')):
        file = write_lora(adapted, "llama", tmp_path / "adapter.gguf", **changes)
        with pytest.raises(RuntimeError, match=sentence):
            run(path, [], "--adapter", f"a={file}")
    file = write_lora(adapted, "qwen2", tmp_path / "adapter.gguf")  # which has q and k in another order
    with pytest.raises(RuntimeError, match='general.architecture is \'qwen2\', supported: "llama"'):
        run(path, [], "--adapter", f"a={file}")
    with pytest.raises(RuntimeError, match="general.type"):  # the model itself
        run(path, [], "--adapter", f"a={path}")
