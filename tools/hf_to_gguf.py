#!/usr/bin/env python3
"""tools/hf_to_gguf.py FOLDER OUT.gguf [--type TYPE]: makes a GGUF file of a Llama in a Hugging Face folder.

The folder holds config.json (model_type llama), tokenizer.json (byte-level BPE) and *.safetensors. Needs the Python package gguf and
what that brings. Matrices keep the type they are stored in, or get TYPE; vectors become f32. What heddle could not run as the folder
means it is refused with one sentence.
"""

import argparse
import json
import math
import pathlib
import sys

import gguf
import numpy as np

TYPES = {"f32": "F32", "f16": "F16", "bf16": "BF16", "q8_0": "Q8_0", "q5_1": "Q5_1", "q5_0": "Q5_0", "q4_1": "Q4_1", "q4_0": "Q4_0"}
STORED = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16}  # bf16: the upper half of an f32
LAYER_TENSORS = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}
OTHER_TENSORS = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
                 "lm_head.weight": "output.weight"}
# How tokenizer.json spells the pre-tokenizers that heddle knows.
WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
PATTERNS = {WORDS % "{1,3}": "llama-bpe", WORDS % "": "qwen2"}


class Refused(Exception):
    """What the folder asks for and heddle does not have."""


def expect(condition, *words):
    if not condition:
        raise Refused(" ".join(map(str, words)))


def read_json(path):
    expect(path.is_file(), f"{path}: is not there")
    return json.loads(path.read_text(encoding="utf-8"))


def read_tensors(folder):
    """{name: (type, array as stored, mapped)} of all safetensors files; bf16 comes as u16."""
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        data = np.memmap(path, np.uint8, "r")
        length = int(data[:8].view("<u8")[0])
        for name, entry in json.loads(bytes(data[8:8 + length])).items():
            if name == "__metadata__":
                continue
            expect(entry["dtype"] in STORED, f"{path}: tensor {name} is {entry['dtype']}, supported:", ", ".join(STORED))
            begin, end = entry["data_offsets"]
            values = data[8 + length + begin:8 + length + end].view(STORED[entry["dtype"]]).reshape(entry["shape"])
            tensors[name] = entry["dtype"], values
    expect(tensors, f"{folder}: no tensors in *.safetensors")
    return tensors


def to_f32(stored, values):
    if stored == "BF16":
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32)


def head_dim(config):
    return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]


def interleaved(values, num_heads):
    """Rows of q or k: GGUF has the two elements of a rotated pair side by side, Hugging Face half a head apart."""
    return values.reshape(num_heads, 2, -1, values.shape[1]).swapaxes(1, 2).reshape(values.shape)


def rope_of(config):
    """(type, settings) in the words of transformers, whose 5th version renamed the field."""
    rope = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    rope.setdefault("rope_theta", config.get("rope_theta", 10000.0))
    return rope.get("rope_type", rope.get("type", "default")), rope


def llama3_factors(config, rope):
    """What the frequencies of Llama 3.1 are divided by: rope_freqs.weight."""
    size, factor, old = head_dim(config), rope["factor"], rope["original_max_position_embeddings"]
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    factors = []
    for i in range(0, size, 2):
        turns = old / (2 * math.pi * rope["rope_theta"] ** (i / size))  # in the context of the first training
        smooth = min(max((turns - low) / (high - low), 0.0), 1.0)
        factors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(factors, np.float32)


def write_config(writer, config, folder):
    kind, rope = rope_of(config)
    expect(config.get("model_type") == "llama", f"{folder}/config.json: model_type is {config.get('model_type')}, supported: llama")
    expect(config.get("hidden_act", "silu") == "silu", f"{folder}/config.json: hidden_act is {config.get('hidden_act')}, supported: silu")
    for field in ("attention_bias", "mlp_bias"):
        expect(not config.get(field), f"{folder}/config.json: {field} is set, which is not supported")
    expect(kind in ("default", "linear", "llama3"), f"{folder}/config.json: rope_type is {kind}, supported: default, linear, llama3")
    writer.add_name(folder.resolve().name)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config.get("num_key_value_heads") or config["num_attention_heads"])
    writer.add_key_length(head_dim(config))
    writer.add_value_length(head_dim(config))
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_rope_dimension_count(head_dim(config))
    writer.add_rope_freq_base(rope["rope_theta"])
    if kind == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    if kind == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_factors(config, rope))


def pre_tokenizer_name(tokenizer, path):
    """The value of tokenizer.ggml.pre."""
    parts = tokenizer.get("pre_tokenizer") or {}
    parts = parts.get("pretokenizers", [parts])
    last = parts[-1]
    expect(last.get("type") == "ByteLevel" and not last.get("add_prefix_space"),
           f"{path}: the pre-tokenizer does not end with ByteLevel without add_prefix_space, which is all that is supported")
    before, by_regex = parts[:-1], last.get("use_regex", True)
    if not before and by_regex:
        return "gpt-2"
    if len(before) == 1 and by_regex and before[0] == {"type": "Digits", "individual_digits": True}:
        return "smollm"
    if len(before) == 1 and not by_regex and before[0].get("type") == "Split" and before[0].get("behavior") == "Isolated":
        name = PATTERNS.get(before[0]["pattern"].get("Regex"))
        if name is not None and (name == "llama-bpe") == bool(tokenizer["model"].get("ignore_merges")):
            return name
    raise Refused(f"{path}: the pre-tokenizer is none of gpt-2, smollm, llama-bpe, qwen2")


def write_tokenizer(writer, config, folder):
    path = folder / "tokenizer.json"
    tokenizer = read_json(path)
    expect(tokenizer["model"].get("type") == "BPE", f"{path}: the model is {tokenizer['model'].get('type')}, supported: byte-level BPE")
    normalizer = tokenizer.get("normalizer")
    expect(normalizer in (None, {"type": "NFC"}), f"{path}: has a normalizer, supported: none, NFC (then prompts must be NFC already)")
    name = pre_tokenizer_name(tokenizer, path)

    size = config["vocab_size"]
    tokens = [f"[UNUSED{i}]" for i in range(size)]  # a checkpoint may have more rows than tokens
    types = [gguf.TokenType.UNUSED] * size
    for token, i in tokenizer["model"]["vocab"].items():
        tokens[i], types[i] = token, gguf.TokenType.NORMAL
    for added in tokenizer["added_tokens"]:
        expect(added["id"] < size, f"{path}: token {added['content']} is {added['id']}, the model has {size} tokens")
        kind = gguf.TokenType.CONTROL if added["special"] else gguf.TokenType.USER_DEFINED
        tokens[added["id"]], types[added["id"]] = added["content"], kind
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(name)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    special = gguf.SpecialVocab(folder, load_merges=True, n_vocab=size)
    special.add_to_gguf(writer, quiet=True)

    # All tokens that end an answer: GGUF has two more names for them.
    generation = folder / "generation_config.json"
    ends = [read_json(f).get("eos_token_id") for f in (generation, folder / "config.json") if f.is_file()]
    ends = next((e if isinstance(e, list) else [e] for e in ends if e is not None), [])
    if "eos" not in special.special_token_ids and ends:
        writer.add_eos_token_id(ends[0])
        special.special_token_ids["eos"] = ends[0]
    more = [e for e in ends if e != special.special_token_ids.get("eos")]
    expect(len(more) <= 2, f"{folder}: {len(more) + 1} tokens end an answer, a GGUF file names up to three")
    for add, token in zip((writer.add_eot_token_id, writer.add_eom_token_id), more):
        add(token)


def write_tensors(writer, config, folder, wanted):
    heads = {"self_attn.q_proj": config["num_attention_heads"],
             "self_attn.k_proj": config.get("num_key_value_heads") or config["num_attention_heads"]}
    for name, (stored, values) in read_tensors(folder).items():
        if name == "lm_head.weight" and config.get("tie_word_embeddings"):
            continue
        if name.endswith("rotary_emb.inv_freq"):  # old checkpoints hold what follows from the configuration
            continue
        target = OTHER_TENSORS.get(name)
        if name.startswith("model.layers."):
            layer, _, part = name.removeprefix("model.layers.").removesuffix(".weight").partition(".")
            if part in LAYER_TENSORS:
                target = f"blk.{layer}.{LAYER_TENSORS[part]}.weight"
            if part in heads:
                values = interleaved(values, heads[part])
        expect(target is not None, f"{folder}: tensor {name} has no place in a llama model")
        kind = gguf.GGMLQuantizationType["F32" if values.ndim == 1 else wanted or stored]
        block = gguf.GGML_QUANT_SIZES[kind][0]
        expect(values.shape[-1] % block == 0, f"{folder}: rows of {name} have {values.shape[-1]} weights, {kind.name} needs a multiple of {block}")
        writer.add_tensor(target, gguf.quants.quantize(to_f32(stored, values), kind), raw_dtype=kind)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--type", choices=TYPES, help="type of the matrices; default: as they are stored")
    arguments = parser.parse_args()
    partial = arguments.out.with_name(arguments.out.name + ".partial")
    try:
        config = read_json(arguments.folder / "config.json")
        writer = gguf.GGUFWriter(partial, "llama", use_temp_file=True)  # tensors wait on disk, not in memory
        write_config(writer, config, arguments.folder)
        write_tokenizer(writer, config, arguments.folder)
        write_tensors(writer, config, arguments.folder, TYPES.get(arguments.type))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    except Refused as refused:
        sys.exit(f"{refused}")
    partial.replace(arguments.out)  # the file appears whole or not at all
    print(f"{arguments.out}: {arguments.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
