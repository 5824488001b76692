"""A tiny random Llama with its tokenizer, and adapters of it whose answers all differ, as the folders that transformers and PEFT write.

  python3 tiny_model.py FOLDER [NUM_ADAPTERS]

Other shapes than TINY are for measurements; bench/made_model_files.py writes its files by some of these functions, too.
"""
import dataclasses
import json
import math
import pathlib
import sys

import numpy as np

SPECIAL = ["<|end|>", "<|user|>", "<|assistant|>"]
TEMPLATE = ("{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
            "{% if add_generation_prompt %}<|assistant|>{% endif %}")


def byte_alphabet():
    """The characters that stand for bytes 0 to 255 in byte-level BPE (GPT-2)."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [b for b in range(256) if b not in plain]
    return {**{b: chr(b) for b in plain}, **{b: chr(256 + i) for i, b in enumerate(others)}}


@dataclasses.dataclass(frozen=True)
class Shape:
    hidden: int
    heads: int
    kv_heads: int
    intermediate: int
    layers: int
    rank: int  # of adapters
    dtype: str = "F32"
    words: int = 0  # tokens besides those of bytes, which no text has

    def vocabulary(self):
        return [*byte_alphabet().values(), *SPECIAL, *(f"<word {i}>" for i in range(self.words))]


TINY = Shape(hidden=64, heads=4, kv_heads=2, intermediate=128, layers=2, rank=4)


def bytes_of(values, dtype):
    """Little-endian f32, or bf16 rounded to nearest."""
    data = np.ascontiguousarray(values, np.float32)
    return data.tobytes() if dtype == "F32" else ((data.view(np.uint32) + 0x8000) >> 16).astype(np.uint16).tobytes()


def safetensors_head(shapes, dtype):
    """What precedes the values of tensors of these shapes, {name: shape}, which lie one after the other: padded to 8 bytes."""
    header, place = {}, 0
    for name, shape in shapes.items():
        size = {"F32": 4, "BF16": 2}[dtype] * math.prod(shape)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [place, place + size]}
        place += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def write_safetensors(path, tensors, dtype):
    head = safetensors_head({name: values.shape for name, values in tensors.items()}, dtype)
    path.write_bytes(head + b"".join(bytes_of(values, dtype) for values in tensors.values()))


def byte_tokenizer(vocabulary, special=()):
    """What tokenizer.json holds for byte-level BPE without merges; of the vocabulary some are special tokens."""
    ids = {text: i for i, text in enumerate(vocabulary)}
    return {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None,
        "added_tokens": [{"id": ids[t], "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                          "special": True} for t in special],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "vocab": ids, "merges": []}}


def projections(shape):
    """(name, out features, in features) of the linear layers."""
    hidden, kv = shape.hidden, shape.kv_heads * (shape.hidden // shape.heads)
    for layer in range(shape.layers):
        at = f"model.layers.{layer}"
        for name, out in (("q_proj", hidden), ("k_proj", kv), ("v_proj", kv), ("o_proj", hidden)):
            yield f"{at}.self_attn.{name}", out, hidden
        for name, out, features in (("gate_proj", shape.intermediate, hidden), ("up_proj", shape.intermediate, hidden),
                                    ("down_proj", hidden, shape.intermediate)):
            yield f"{at}.mlp.{name}", out, features


def write_model(folder, shape=TINY, seed=1):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    vocabulary, hidden = shape.vocabulary(), shape.hidden
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden, "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers, "num_attention_heads": shape.heads, "num_key_value_heads": shape.kv_heads,
        "head_dim": hidden // shape.heads, "vocab_size": len(vocabulary), "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "float32", "bos_token_id": None,
        "eos_token_id": vocabulary.index("<|end|>")}))
    (folder / "tokenizer.json").write_text(json.dumps(byte_tokenizer(vocabulary, SPECIAL)))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>", "chat_template": TEMPLATE,
        "model_max_length": 2048, "clean_up_tokenization_spaces": False}))
    tensors = {"model.embed_tokens.weight": random.normal(0, 1, (len(vocabulary), hidden)),
               "model.norm.weight": np.ones(hidden), "lm_head.weight": random.normal(0, 0.3, (len(vocabulary), hidden))}
    tensors["lm_head.weight"][256:] = 0  # special tokens are hardly ever the most likely ones
    for name, out, features in projections(shape):
        tensors[f"{name}.weight"] = random.normal(0, features ** -0.5, (out, features))
    for layer in range(shape.layers):
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"model.layers.{layer}.{norm}.weight"] = np.ones(hidden)
    write_safetensors(folder / "model.safetensors", tensors, shape.dtype)


def write_adapter(folder, seed, shape=TINY):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    random, rank = np.random.default_rng(1000 + seed), shape.rank
    tensors = {}
    for name, out, features in projections(shape):
        tensors[f"base_model.model.{name}.lora_A.weight"] = random.normal(0, features ** -0.5, (rank, features))
        tensors[f"base_model.model.{name}.lora_B.weight"] = random.normal(0, rank ** -0.5, (out, rank))
    (folder / "adapter_config.json").write_text(json.dumps({
        "peft_type": "LORA", "r": rank, "lora_alpha": 0.9 * rank, "bias": "none", "task_type": "CAUSAL_LM", "lora_dropout": 0.0,
        "base_model_name_or_path": "", "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]}))
    write_safetensors(folder / "adapter_model.safetensors", tensors, shape.dtype)


def write_all(folder, num_adapters, shape=TINY):
    folder = pathlib.Path(folder)
    write_model(folder / "model", shape)
    (folder / "adapters").mkdir(exist_ok=True)
    for i in range(num_adapters):
        write_adapter(folder / "adapters" / f"a{i}", i, shape)


if __name__ == "__main__":
    write_all(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 4)
