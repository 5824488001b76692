"""tools/hf_to_gguf.py: heddle computes from its files what transformers computes from the folder."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest
from frameworks import TORCH_WANTED

ROOT = pathlib.Path(__file__).parents[2]
HEDDLE = pathlib.Path(os.environ.get("HEDDLE_BUILD_DIR", ROOT / "build")) / "heddle"
TEXT = "the loom and the heddle: 12 threads, 345 picks. "
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}

pytestmark = pytest.mark.skipif(not TORCH_WANTED, reason="skipped: HEDDLE_TEST_TORCH=0")


def make_tokenizer(kind: str) -> Any:
    """A byte-level BPE of some three hundred tokens with the pre-tokenizer of that name."""
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers, trainers

    sys.path.insert(0, str(ROOT / "tools"))
    import hf_to_gguf

    tokenizer = tokenizers.Tokenizer(models.BPE(ignore_merges=kind == "llama-bpe"))
    parts: list[Any] = [pre_tokenizers.ByteLevel(add_prefix_space=False)]
    if kind == "smollm":
        parts.insert(0, pre_tokenizers.Digits(individual_digits=True))
    for pattern, name in hf_to_gguf.PATTERNS.items():
        if name == kind:
            split = pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
            parts = [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(parts) if parts[1:] else parts[0]
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([TEXT] * 20, trainer)
    return tokenizer


def make_folder(folder: pathlib.Path, kind: str = "gpt-2", **config: Any) -> Any:
    """A random Llama with its tokenizer, saved by transformers; returns the model."""
    import torch
    import transformers

    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256}
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=make_tokenizer(kind), bos_token="<s>", eos_token="</s>"
    )
    fast.chat_template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    settings = transformers.LlamaConfig(
        **{"vocab_size": len(fast) + 3, **sizes, **heads, "initializer_range": 0.3, **config},
        bos_token_id=0,
        eos_token_id=1,
    )
    model = transformers.LlamaForCausalLM(settings)
    model.to(config.get("dtype", torch.float32)).save_pretrained(folder)
    fast.save_pretrained(folder)
    return transformers.LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def convert(folder: pathlib.Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Runs the tool; the file is FOLDER.gguf."""
    script = ROOT / "tools" / "hf_to_gguf.py"
    command = [sys.executable, str(script), str(folder), f"{folder}.gguf", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def answers(folder: pathlib.Path, prompts: list[str], *options: str) -> list[dict[str, Any]]:
    """What heddle generates from FOLDER.gguf, with log-probabilities."""
    rows = folder.with_suffix(".jsonl")
    rows.write_text("".join(json.dumps({"prompt": p, "max_tokens": 12}) + "\n" for p in prompts))
    command = [str(HEDDLE), "generate", "--model", f"{folder}.gguf", "--strict", "--json", "--logprobs", "--raw"]
    done = subprocess.run(
        [*command, *options, "--prompts", str(rows)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    got = [json.loads(line) for line in done.stdout.splitlines()]
    return sorted(got, key=lambda row: int(row["index"]))


def check_against_transformers(model: Any, folder: pathlib.Path, tolerance: float) -> None:
    """Prompts, greedy tokens and their log-probabilities are those of transformers."""
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    prompts = [TEXT, "  a 1234 loom's   heddle\n\n é", TEXT * 6]
    for prompt, row in zip(prompts, answers(folder, prompts), strict=True):
        ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
        assert row["prompt_tokens"] == len(ids)
        full = [*ids, *row["token_ids"]]
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([full])).logits[0, len(ids) - 1 :]
        assert row["token_ids"], row
        for logit, token, logprob in zip(logits, row["token_ids"], row["logprobs"], strict=False):
            wanted = torch.log_softmax(logit.double(), -1)
            assert wanted[token] >= wanted.max() - 2 * tolerance
            assert abs(float(wanted[token]) - logprob) <= tolerance


@pytest.mark.parametrize("kind", ["gpt-2", "smollm", "llama-bpe", "qwen2"])
def test_tokens_and_logits_are_those_of_transformers(kind: str, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "model"
    model = make_folder(folder, kind)
    done = convert(folder)
    assert done.returncode == 0, done.stderr
    check_against_transformers(model, folder, 1e-3)


@pytest.mark.parametrize(
    "rope", [LLAMA3, {"rope_type": "linear", "rope_theta": 5000.0, "factor": 4.0}]
)
def test_scaled_positions(rope: dict[str, Any], tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "model"
    model = make_folder(folder, rope_parameters=rope, tie_word_embeddings=True, head_dim=32)
    done = convert(folder)
    assert done.returncode == 0, done.stderr
    check_against_transformers(model, folder, 1e-3)


def test_types_of_the_matrices(tmp_path: pathlib.Path) -> None:
    import torch

    folder = tmp_path / "model"
    model = make_folder(folder, dtype=torch.bfloat16)
    for options, expected in [((), "BF16"), (("--type", "f16"), "F16"), (("--type", "q8_0"), "Q8_0")]:
        assert convert(folder, *options).returncode == 0
        shown = subprocess.run(
            [HEDDLE, "inspect", f"{folder}.gguf"], capture_output=True, text=True, check=True
        ).stdout
        assert f"token_embd.weight  {expected} [" in shown
        assert "output_norm.weight  F32 [" in shown
        if expected != "Q8_0":
            check_against_transformers(model, folder, 1e-3)  # f16 holds these bf16 values


@pytest.mark.parametrize(
    ("file", "field", "value", "says"),
    [
        ("config.json", "model_type", "qwen3", "model_type is qwen3"),
        ("config.json", "attention_bias", True, "attention_bias is set"),
        ("config.json", "rope_parameters", {"rope_type": "yarn"}, "rope_type is yarn"),
        ("tokenizer.json", "normalizer", {"type": "Lowercase"}, "has a normalizer"),
        ("tokenizer.json", "pre_tokenizer", {"type": "Whitespace"}, "does not end with ByteLevel"),
        ("tokenizer.json", "model", {"type": "Unigram"}, "the model is Unigram"),
    ],
)
def test_refuses_in_one_sentence(
    file: str, field: str, value: Any, says: str, tmp_path: pathlib.Path
) -> None:
    folder = tmp_path / "model"
    make_folder(folder)
    content = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps({**content, field: value}))
    done = convert(folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert says in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert not pathlib.Path(f"{folder}.gguf").exists()
