"""Folders and GGUF files as people have them, and what transformers (or llama.cpp) makes of them: tied heads that differ, tokenizers with more
tokens than rows, tokens of other files than tokenizer.json, files that are incomplete, settings that are missing or of a wrong type."""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import re
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from frameworks import TORCH_WANTED

ROOT = pathlib.Path(__file__).parents[3]
PROGRAM = pathlib.Path(os.environ.get("HEDDLE_BUILD_DIR", ROOT / "build")) / "heddle"
pytestmark = pytest.mark.skipif(not TORCH_WANTED, reason="skipped: HEDDLE_TEST_TORCH=0")
HAS_GGUF = importlib.util.find_spec("gguf") is not None
SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
         "max_position_embeddings": 256}
PROMPT = "warp and"


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Any:
    if not TORCH_WANTED:
        yield
        return
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def make_tokenizer(**options: Any) -> Any:
    import tokenizers
    import transformers
    from tokenizers import decoders, models, pre_tokenizers, trainers

    bpe = tokenizers.Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    special = ["<pad>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
    bpe.train_from_iterator(["warp and weft, weft and warp; the loom hums on and on 12345 12345"], trainers.BpeTrainer(
        vocab_size=300, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token="<s>", eos_token="</s>", **options)


def make_model(vocab: int, family: str = "Llama", config: str = "", **settings: Any) -> Any:
    import torch
    import transformers

    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None}
    made = getattr(transformers, config or f"{family}Config")(**(SMALL | ids | settings), vocab_size=vocab, attn_implementation="eager")
    torch.manual_seed(0)
    model = getattr(transformers, f"{family}ForCausalLM")(made).float().eval()
    with torch.no_grad():
        for name, values in model.named_parameters():
            if "norm" not in name:
                values.copy_(torch.randn_like(values) * (1.0 if "embed" in name else 0.25))
    return model


def save(folder: pathlib.Path, model: Any, tokenizer: Any) -> pathlib.Path:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def load(folder: pathlib.Path) -> Any:
    import transformers

    return transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").float().eval()


def greedy(model: Any, ids: list[int], tokens: int = 12) -> list[int]:
    import torch

    row = list(ids)
    with torch.no_grad():
        for _ in range(tokens):
            row.append(int(model(input_ids=torch.tensor([row])).logits[0, -1].argmax()))
    return row[len(ids):]


def run(model: pathlib.Path, *options: str | pathlib.Path, rows: list[dict[str, Any]] | None = None) -> subprocess.CompletedProcess[str]:
    text = "".join(json.dumps(row) + "\n" for row in rows or [{"prompt": PROMPT}])
    command = [PROGRAM, "generate", "--model", model, "--json", "--raw", "--max-tokens", "12", "--threads", "1", "--kv-memory", "16M"]
    return subprocess.run([*command, *options, "-"], input=text, capture_output=True, text=True, check=False)


def answer(model: pathlib.Path, *options: str | pathlib.Path, **row: Any) -> dict[str, Any]:
    result = run(model, *options, rows=[{"prompt": PROMPT} | row])
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[0]) | {"stderr": result.stderr}


def refusal(model: pathlib.Path, *options: str | pathlib.Path) -> str:
    result = run(model, *options)
    assert result.returncode != 0
    return result.stderr


def edit(path: pathlib.Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def edit_tensors(path: pathlib.Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    from safetensors.torch import load_file, save_file

    save_file({name: values.contiguous() for name, values in change(load_file(path)).items()}, path, metadata={"format": "pt"})


def plain(folder: pathlib.Path, **settings: Any) -> pathlib.Path:
    tokenizer = make_tokenizer()
    return save(folder, make_model(len(tokenizer), **settings), tokenizer)


def ids_of(folder: pathlib.Path, text: str = PROMPT) -> list[int]:
    import transformers

    return list(transformers.AutoTokenizer.from_pretrained(folder)(text)["input_ids"])


def test_a_tied_head_that_differs_is_kept(tmp_path: pathlib.Path) -> None:
    plain(tmp_path, tie_word_embeddings=False)
    edit(tmp_path / "config.json", tie_word_embeddings=True)
    got = answer(tmp_path)
    assert got["token_ids"] == greedy(load(tmp_path), ids_of(tmp_path))
    assert "config.json: tie_word_embeddings is true, yet" in got["stderr"]
    assert "that differs from 'model.embed_tokens.weight'" in refusal(tmp_path, "--strict")


def test_a_tied_head_that_is_equal_is_no_matter(tmp_path: pathlib.Path) -> None:
    plain(tmp_path, tie_word_embeddings=True)
    want = answer(tmp_path)["token_ids"]
    edit_tensors(tmp_path / "model.safetensors", lambda all: all | {"lm_head.weight": all["model.embed_tokens.weight"].clone()})
    assert answer(tmp_path, "--strict")["token_ids"] == want == greedy(load(tmp_path), ids_of(tmp_path))


def test_the_head_alone_is_the_embedding_too(tmp_path: pathlib.Path) -> None:
    plain(tmp_path, tie_word_embeddings=True)
    edit_tensors(tmp_path / "model.safetensors",
                 lambda all: {name.replace("model.embed_tokens", "lm_head"): values for name, values in all.items()})
    assert answer(tmp_path, "--strict")["token_ids"] == greedy(load(tmp_path), ids_of(tmp_path))


@pytest.mark.parametrize("family", ["Llama", "Gemma3"])
def test_a_tokenizer_may_have_more_tokens_than_rows(family: str, tmp_path: pathlib.Path) -> None:
    tokenizer = make_tokenizer()
    rows = len(tokenizer)
    tokenizer.add_tokens(["<image_soft_token>"], special_tokens=True)
    settings = {"config": "Gemma3TextConfig", "head_dim": 16, "query_pre_attn_scalar": 16} if family == "Gemma3" else {}
    save(tmp_path, make_model(rows, family, **settings), tokenizer)
    assert answer(tmp_path, "--strict")["token_ids"] == greedy(load(tmp_path), ids_of(tmp_path))
    rows_of_both = [{"prompt": "<image_soft_token>"}, {"prompt": PROMPT}]
    result = run(tmp_path, rows=rows_of_both)
    both = sorted(map(json.loads, result.stdout.splitlines()), key=lambda one: one["index"])
    assert f"token id {rows} ('<image_soft_token>' of the tokenizer), the vocabulary has {rows}" in both[0]["error"]
    assert both[1]["token_ids"]


def extra(**flags: bool) -> dict[str, Any]:
    return {"content": "<extra>", "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True} | flags


def with_config(**changes: Any) -> Callable[[pathlib.Path, int], None]:
    return lambda folder, _: edit(folder / "tokenizer_config.json", **changes)


def with_decoder(token: dict[str, Any], by: int = 0) -> Callable[[pathlib.Path, int], None]:
    return lambda folder, size: edit(folder / "tokenizer_config.json", added_tokens_decoder={str(size + by): token})


def with_added(folder: pathlib.Path, size: int) -> None:
    (folder / "added_tokens.json").write_text(json.dumps({"<second>": size + 1, "<extra>": size}))


def with_map(folder: pathlib.Path, size: int) -> None:
    with_added(folder, size)
    (folder / "special_tokens_map.json").write_text(json.dumps({"pad_token": "<extra>", "mask_token": {"content": "<second>", "lstrip": True}}))


def with_all(folder: pathlib.Path, size: int) -> None:
    edit(folder / "tokenizer_config.json", added_tokens_decoder={str(size + 9): extra(), str(size + 2): extra(content="<second>")},
         pad_token="[PAD]", image_token="<image>", extra_special_tokens=["<third>", "<extra>"])


TEXTS = ("warp<extra> and<second>", "warp <extra>  and", "<image>[PAD]<third> warp <unit>", "x<extra>x")
ADDITIONS: dict[str, Callable[[pathlib.Path, int], None]] = {
    "added_tokens_decoder": with_decoder(extra()),
    "added_tokens_decoder, not special": with_decoder(extra(special=False, normalized=True)),
    "added_tokens_decoder, spaces": with_decoder(extra(lstrip=True, rstrip=True)),
    "added_tokens_decoder, another id": with_decoder(extra(), 3),
    "added_tokens_decoder, a word": with_decoder(extra(single_word=True)),
    "added_tokens_decoder, of a known token": with_decoder(extra(content="<s>", lstrip=True), -10),
    "extra_special_tokens": with_config(extra_special_tokens=["<extra>", "<second>"]),
    "extra_special_tokens by name": with_config(extra_special_tokens={"image_token": "<image>", "other": "<extra>"}),
    "additional_special_tokens": with_config(additional_special_tokens=["<second>", "<extra>"]),
    "pad_token": with_config(pad_token="[PAD]"),
    "pad_token as an object": with_config(pad_token={"__type": "AddedToken", "content": "[PAD]", "lstrip": True, "normalized": False,
                                                     "rstrip": False, "single_word": False}),
    "a token of the model's own": with_config(image_token="<image>", sep_token="<third>"),
    "added_tokens.json": with_added,
    "special_tokens_map.json": with_map,
    "all": with_all,
}


@pytest.mark.parametrize("name", ADDITIONS)
def test_tokens_of_other_files(name: str, tmp_path: pathlib.Path) -> None:
    tokenizer = make_tokenizer()
    save(tmp_path, make_model(len(tokenizer) + 12), tokenizer)
    ADDITIONS[name](tmp_path, len(tokenizer))
    result = run(tmp_path, "--strict", rows=[{"prompt": text, "max_tokens": 4} for text in TEXTS])
    assert result.returncode == 0, result.stderr
    answers = sorted(map(json.loads, result.stdout.splitlines()), key=lambda one: one["index"])
    model = load(tmp_path)
    for text, got in zip(TEXTS, answers, strict=True):
        ids = ids_of(tmp_path, text)
        assert (got["prompt_tokens"], got["token_ids"]) == (len(ids), greedy(model, ids, 4)), text


def write_pair(folder: pathlib.Path, kind: str) -> None:
    """vocab.json and merges.txt in place of tokenizer.json."""
    data = json.loads((folder / "tokenizer.json").read_text())
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in data["model"]["merges"]]
    (folder / "vocab.json").write_text(json.dumps(data["model"]["vocab"]))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    (folder / "tokenizer.json").unlink()
    added = {str(token["id"]): {key: value for key, value in token.items() if key != "id"} for token in data["added_tokens"]}
    edit(folder / "tokenizer_config.json", tokenizer_class=kind, added_tokens_decoder=added)


@pytest.mark.parametrize("kind", ["Qwen2Tokenizer", "Qwen2TokenizerFast", "GPT2Tokenizer"])
def test_vocabulary_and_merges(kind: str, tmp_path: pathlib.Path) -> None:
    plain(tmp_path)
    write_pair(tmp_path, kind)
    for text in (PROMPT, "the LOOM's 12345\n\n  hums<|im_end|> on"):
        ids = ids_of(tmp_path, text)
        got = answer(tmp_path, prompt=text)
        assert (got["prompt_tokens"], got["token_ids"]) == (len(ids), greedy(load(tmp_path), ids))


def test_no_tokenizer_json(tmp_path: pathlib.Path) -> None:
    plain(tmp_path)
    write_pair(tmp_path, "RobertaTokenizer")
    said = refusal(tmp_path)
    assert "vocab.json and merges.txt of a RobertaTokenizer" in said
    assert f"AutoTokenizer.from_pretrained('{tmp_path}').save_pretrained('{tmp_path}')" in said
    (tmp_path / "merges.txt").unlink()
    assert "has no tokenizer.json; this makes one: python -c" in refusal(tmp_path)


def test_weights_as_bin(tmp_path: pathlib.Path) -> None:
    """The line of Python that the sentence has makes a folder that loads."""
    import sys

    import torch
    from safetensors.torch import load_file

    plain(tmp_path)
    want = answer(tmp_path)["token_ids"]
    torch.save(load_file(tmp_path / "model.safetensors"), tmp_path / "pytorch_model.bin")
    (tmp_path / "model.safetensors").unlink()
    said = refusal(tmp_path)
    assert "pytorch_model.bin: holds pickles, which heddle does not read" in said
    code = re.search(r'python -c "(.*)"', said)
    assert code
    subprocess.run([sys.executable, "-c", code.group(1)], check=True, capture_output=True)
    assert answer(tmp_path)["token_ids"] == want


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json", "tokenizer_config.json"])
def test_a_pointer_of_git_lfs(name: str, tmp_path: pathlib.Path) -> None:
    plain(tmp_path)
    (tmp_path / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 33176\n")
    assert f"{name}: is a pointer of git-lfs" in refusal(tmp_path)
    assert 'run "git lfs pull"' in refusal(tmp_path)


def test_a_pointer_of_git_lfs_as_gguf(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 33176\n")
    assert 'model.gguf: is a pointer of git-lfs, the file itself was not downloaded; run "git lfs pull"' in refusal(path)


def test_tensors_without_a_place(tmp_path: pathlib.Path) -> None:
    import torch

    plain(tmp_path)
    want = answer(tmp_path)["token_ids"]
    edit_tensors(tmp_path / "model.safetensors", lambda all: all | {"v_head.summary.weight": torch.zeros(1, 64)})
    got = answer(tmp_path)
    assert got["token_ids"] == want
    assert "1 tensor, 'v_head.summary.weight', not loaded: not part of a llama model" in got["stderr"]
    assert "v_head" in refusal(tmp_path, "--strict")
    edit_tensors(tmp_path / "model.safetensors", lambda all: all | {"model.layers.0.self_attn.q_proj.bias": torch.zeros(64)})
    assert "'model.layers.0.self_attn.q_proj.bias' has no place in a llama model" in refusal(tmp_path)


def test_fewer_layers_than_the_file_has(tmp_path: pathlib.Path) -> None:
    plain(tmp_path)
    edit(tmp_path / "config.json", num_hidden_layers=1)
    got = answer(tmp_path)
    assert got["token_ids"] == greedy(load(tmp_path), ids_of(tmp_path))
    assert "of layers past the last, not loaded: num_hidden_layers of" in got["stderr"]


def test_an_index_that_lists_more_than_the_files_have(tmp_path: pathlib.Path) -> None:
    plain(tmp_path)
    want = answer(tmp_path)["token_ids"]
    load(tmp_path).save_pretrained(tmp_path, max_shard_size="100KB")
    (tmp_path / "model.safetensors").unlink(missing_ok=True)
    index = tmp_path / "model.safetensors.index.json"
    listed = json.loads(index.read_text())
    first = sorted(listed["weight_map"].values())[0]
    listed["weight_map"]["model.layers.0.self_attn.rotary_emb.inv_freq"] = first
    index.write_text(json.dumps(listed))
    assert answer(tmp_path, "--strict")["token_ids"] == want
    listed["weight_map"]["model.layers.0.self_attn.masked_bias"] = first
    index.write_text(json.dumps(listed))
    got = answer(tmp_path)
    assert got["token_ids"] == want
    assert "lists 1 tensor, 'model.layers.0.self_attn.masked_bias', which no file has" in got["stderr"]


@pytest.mark.parametrize("value", [None, []])
def test_no_architectures(value: Any, tmp_path: pathlib.Path) -> None:
    plain(tmp_path)
    want = answer(tmp_path)["token_ids"]
    edit(tmp_path / "config.json", architectures=value)
    assert answer(tmp_path, "--strict")["token_ids"] == want
    edit(tmp_path / "config.json", model_type="bert")
    assert "config.json: model_type is bert, supported: gemma2, gemma3_text" in refusal(tmp_path)


@pytest.mark.parametrize("ids", [-1, 99999, [2, -1]])
def test_end_tokens_that_no_row_has(ids: Any, tmp_path: pathlib.Path) -> None:
    plain(tmp_path)
    want = answer(tmp_path)["token_ids"]
    for name in ("config.json", "generation_config.json"):
        edit(tmp_path / name, eos_token_id=ids)
    assert answer(tmp_path, "--strict")["token_ids"] == want
    assert answer(tmp_path, min_tokens=4)["token_ids"] == want


# What says nothing that any of these could be left out of: those are compared in test_families.py.
WRONG: dict[str, list[tuple[str, Any]]] = {
    "config.json": [
        ("rope_scaling", "yarn"), ("rope_scaling", 8.0), ("rope_scaling", [{"rope_type": "llama3"}]), ("rope_parameters", 255),
        ("rope_parameters", {"rope_type": "default", "factor": "8"}), ("rope_parameters", {"rope_type": 3}),
        ("rope_parameters", {"rope_type": "default", "rope_theta": 10000.0, "full_attention": 1}),
        ("num_hidden_layers", "2"), ("num_hidden_layers", 2.5), ("vocab_size", True), ("hidden_act", 1), ("tie_word_embeddings", "yes"),
        ("attention_bias", 0), ("use_cache", "true"), ("eos_token_id", "2"), ("layer_types", "full_attention"), ("sliding_window", "7"),
        ("max_window_layers", "7"), ("architectures", "LlamaForCausalLM"), ("quantization_config", "awq"), ("_name_or_path", 7),
        ("model_type", 7), ("rope_theta", "1e4"), ("rms_norm_eps", [1e-6]), ("head_dim", {"q": 16}),
    ],
    "generation_config.json": [("temperature", "0.7"), ("eos_token_id", "2"), ("top_k", 2.5), ("do_sample", 1), ("repetition_penalty", [1.1])],
    "tokenizer_config.json": [("chat_template", 3), ("added_tokens_decoder", ["<extra>"]), ("pad_token", 3), ("add_bos_token", "true"),
                              ("extra_special_tokens", "<extra>"), ("model_max_length", "2048")],
    "special_tokens_map.json": [("eos_token", 3)],
}


@pytest.mark.parametrize(("name", "field", "value"), [(name, field, value) for name, pairs in WRONG.items() for field, value in pairs],
                         ids=lambda value: json.dumps(value))
def test_settings_of_a_wrong_type(name: str, field: str, value: Any, tmp_path: pathlib.Path) -> None:
    plain(tmp_path)
    path = tmp_path / name
    if not path.exists():
        path.write_text("{}")
    edit(path, **{field: value})
    said = refusal(tmp_path)
    assert f"{path}: {field}" in said
    assert "expected " in said


def test_unknown_members_of_a_rotation(tmp_path: pathlib.Path) -> None:
    plain(tmp_path)
    edit(tmp_path / "config.json", rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "warp_factor": 9})
    assert "config.json: rope_parameters.warp_factor is a setting that heddle does not know" in answer(tmp_path)["stderr"]


def defaults_of_heddle() -> dict[str, dict[str, Any]]:
    """By model_type of the text what a config.json may leave out, as the sources say it."""
    found = {}
    pattern = re.compile(r'constexpr std::string_view (\w+) =\s*R"\((\{.*?\})\)"', re.S)
    for path in sorted((ROOT / "src" / "model" / "families").glob("*.cpp")):
        text = path.read_text()
        tables = {name: json.loads(table) for name, table in pattern.findall(text)}
        others = r"(?:\s*\.(?:architecture|gguf_architecture|family) = [^,]+,)*"
        for type_, name in re.findall(r'\.(?:name|model_type|text_type) = "(\w+)",' + others + r"\s*\.folder_defaults = (\w+),", text):
            found[type_] = tables[name]
    return found


def test_what_settings_may_leave_out() -> None:
    """It is what transformers' classes take."""
    import transformers

    tables = defaults_of_heddle()
    assert set(tables) == {"llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "phi3", "granite", "olmo2", "smollm3",
                           "qwen2_vl_text", "qwen2_5_vl_text", "qwen3_vl_text"}
    for type_, table in tables.items():
        kind = transformers.CONFIG_MAPPING[type_]
        config = kind()
        for key, ours in table.items():
            theirs = kind.default_theta if key == "rope_theta" else getattr(kind, key, getattr(config, key))
            assert ours == theirs, (type_, key)
        for key in ("num_key_value_heads", "head_dim", "rms_norm_eps"):
            theirs = getattr(config, key, None)
            fallback = {"num_key_value_heads": config.num_attention_heads, "head_dim": config.hidden_size // config.num_attention_heads,
                        "rms_norm_eps": 1e-6}[key]
            assert theirs is None or table.get(key, fallback) == theirs, (type_, key)


def write_llama(model: Any, tokenizer: Any, path: pathlib.Path, pre: str | None = "llama-bpe", extra: Callable[[Any], None] = lambda _: None,
                types: dict[str, int] | None = None) -> pathlib.Path:
    """A GGUF file of a Llama with its tokenizer."""
    import gguf
    import numpy as np
    from family_gguf import add_rotation, add_settings, heads_of, interleave, names_in_gguf

    writer = gguf.GGUFWriter(path, "llama")
    add_rotation(writer, "llama", model.config, add_settings(writer, "llama", model.config))
    data = json.loads(tokenizer.backend_tokenizer.to_str())
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    special = {token["id"] for token in data["added_tokens"]}
    writer.add_tokenizer_model("gpt2")
    if pre is not None:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list([text for text, _ in vocabulary])
    writer.add_token_types([(types or {}).get(text, 3 if id_ in special else 1) for text, id_ in vocabulary])
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in data["model"]["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)
    extra(writer)
    for name, stored, values in names_in_gguf(model, "llama"):
        heads = heads_of("llama", model.config, name)
        array = values.detach().numpy()
        writer.add_tensor(stored, np.ascontiguousarray(interleave(array, heads) if heads else array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


with_gguf = pytest.mark.skipif(not HAS_GGUF, reason="skipped: without the package gguf")


@with_gguf
@pytest.mark.parametrize("type_", [1, 3, 4])
def test_ends_of_turn_by_their_text(type_: int, tmp_path: pathlib.Path) -> None:
    """As llama.cpp has it, whatever the type of the token."""
    tokenizer = make_tokenizer()
    path = write_llama(make_model(len(tokenizer)), tokenizer, tmp_path / "chat.gguf", types={"<|im_end|>": type_})
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    result = run(path, rows=[{"prompt": PROMPT, "logit_bias": {str(end): 100}}])
    got = json.loads(result.stdout)
    assert (got["finish_reason"], got["text"]) == ("stop", "")


@with_gguf
def test_no_name_of_a_pre_tokenizer(tmp_path: pathlib.Path) -> None:
    tokenizer = make_tokenizer()
    model = make_model(len(tokenizer))
    prompt = "12345 12345 warp"
    want = answer(write_llama(model, tokenizer, tmp_path / "default.gguf", "default"), prompt=prompt)
    path = write_llama(model, tokenizer, tmp_path / "none.gguf", None)
    got = answer(path, prompt=prompt)
    assert (got["prompt_tokens"], got["token_ids"]) == (want["prompt_tokens"], want["token_ids"])
    assert got["prompt_tokens"] != answer(write_llama(model, tokenizer, tmp_path / "gpt2.gguf", "gpt-2"), prompt=prompt)["prompt_tokens"]
    assert "warning: " in got["stderr"]
    assert "none.gguf: has no tokenizer.ggml.pre" in got["stderr"]
    assert "warning" not in want["stderr"]


@with_gguf
@pytest.mark.parametrize(("key", "value"), [("padding", 305), ("unknown", 4294967295), ("eos", 70000), ("mask", 300)])
def test_roles_of_tokens_that_are_not_there(key: str, value: int, tmp_path: pathlib.Path) -> None:
    tokenizer = make_tokenizer()
    model = make_model(len(tokenizer))
    want = answer(write_llama(model, tokenizer, tmp_path / "plain.gguf"))["token_ids"]

    def add(writer: Any) -> None:
        writer.kv_data[0].pop(f"tokenizer.ggml.{key}_token_id", None)
        writer.add_uint32(f"tokenizer.ggml.{key}_token_id", value)

    got = answer(write_llama(model, tokenizer, tmp_path / "odd.gguf", extra=add))
    assert got["token_ids"] == want
    assert f"tokenizer.ggml.{key}_token_id is {value}, the vocabulary has" in got["stderr"]
