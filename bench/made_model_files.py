#!/usr/bin/env python3
"""bench/made_model_files.py FOLDER [--layers N]: a Llama of made-up weights in files, to measure how fast they are loaded.

Writes FOLDER/bf16 (config.json, tokenizer.json, model.safetensors, as transformers saves them) and FOLDER/q4_0.gguf. The layers have
the shape of Llama-3.1-8B, and there are 8 of them by default: 4.0 GB in bf16, 1.1 GB in Q4_0. Needs NumPy.
"""

import argparse
import json
import pathlib
import struct
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests/server"))
from tiny_model import byte_alphabet, byte_tokenizer, safetensors_head  # noqa: E402

HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, HEAD_DIM, VOCABULARY = 4096, 14336, 32, 8, 128, 32000
CONTEXT = 4096
GGUF_ALIGNMENT = 32
GGUF_U32, GGUF_F32, GGUF_STRING, GGUF_ARRAY, GGUF_I32 = 4, 6, 8, 9, 5
GGML_F32, GGML_Q4_0 = 0, 2
Q4_0_BLOCK, Q4_0_BYTES = 32, 18
DRAWN_BYTES = (1 << 24) + 18  # that all tensors are made of


def tensors(layers):
    """(name in transformers, name in GGUF, shape) of all tensors; a vector is a norm."""
    kv = KV_HEADS * HEAD_DIM
    yield "model.embed_tokens.weight", "token_embd.weight", (VOCABULARY, HIDDEN)
    yield "lm_head.weight", "output.weight", (VOCABULARY, HIDDEN)
    yield "model.norm.weight", "output_norm.weight", (HIDDEN,)
    for i in range(layers):
        for name, short, shape in (
                ("input_layernorm", "attn_norm", (HIDDEN,)), ("post_attention_layernorm", "ffn_norm", (HIDDEN,)),
                ("self_attn.q_proj", "attn_q", (HIDDEN, HIDDEN)), ("self_attn.k_proj", "attn_k", (kv, HIDDEN)),
                ("self_attn.v_proj", "attn_v", (kv, HIDDEN)), ("self_attn.o_proj", "attn_output", (HIDDEN, HIDDEN)),
                ("mlp.gate_proj", "ffn_gate", (INTERMEDIATE, HIDDEN)), ("mlp.up_proj", "ffn_up", (INTERMEDIATE, HIDDEN)),
                ("mlp.down_proj", "ffn_down", (HIDDEN, INTERMEDIATE))):
            yield f"model.layers.{i}.{name}.weight", f"blk.{i}.{short}.weight", shape


def write_repeated(file, drawn, size):
    """`size` bytes of the drawn ones, from their beginning over and over."""
    while size > 0:
        file.write(drawn[:size])
        size -= len(drawn)


def write_folder(folder, layers, random):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": layers, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM,
        "vocab_size": VOCABULARY, "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "bfloat16"}))
    (folder / "tokenizer.json").write_text(json.dumps(byte_tokenizer(byte_alphabet().values())))
    values = random.normal(0, 0.02, DRAWN_BYTES // 2).astype(np.float32)
    drawn = (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(safetensors_head({name: shape for name, _, shape in tensors(layers)}, "BF16"))
        for _, _, shape in tensors(layers):
            write_repeated(file, drawn, 2 * int(np.prod(shape)))


def gguf_string(text):
    return struct.pack("<Q", len(text.encode())) + text.encode()


def gguf_value(value):
    if isinstance(value, str):
        return struct.pack("<I", GGUF_STRING) + gguf_string(value)
    if isinstance(value, float):
        return struct.pack("<If", GGUF_F32, value)
    if isinstance(value, int):
        return struct.pack("<II", GGUF_U32, value)
    kind, pack = (GGUF_STRING, gguf_string) if not value or isinstance(value[0], str) else (GGUF_I32, lambda i: struct.pack("<i", i))
    return struct.pack("<IIQ", GGUF_ARRAY, kind, len(value)) + b"".join(map(pack, value))


def write_gguf(path, layers, random):
    tokens = list(byte_alphabet().values())
    tokens += [f"unused {i}" for i in range(VOCABULARY - len(tokens))]
    settings = {
        "general.architecture": "llama", "llama.block_count": layers, "llama.context_length": CONTEXT,
        "llama.embedding_length": HIDDEN, "llama.feed_forward_length": INTERMEDIATE, "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS, "llama.rope.dimension_count": HEAD_DIM,
        "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.freq_base": 10000.0, "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.merges": [],
        "tokenizer.ggml.token_type": [1] * len(tokens)}
    def size_of(shape):
        count = int(np.prod(shape))
        return 4 * count if len(shape) == 1 else count // Q4_0_BLOCK * Q4_0_BYTES
    all_tensors = list(tensors(layers))
    head = struct.pack("<IIQQ", 0x46554747, 3, len(all_tensors), len(settings))
    head += b"".join(gguf_string(key) + gguf_value(value) for key, value in settings.items())
    place = 0
    for _, name, shape in all_tensors:
        kind = GGML_F32 if len(shape) == 1 else GGML_Q4_0
        head += gguf_string(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *reversed(shape))
        head += struct.pack("<IQ", kind, place)
        place += -(-size_of(shape) // GGUF_ALIGNMENT) * GGUF_ALIGNMENT
    blocks = random.integers(0, 256, (DRAWN_BYTES // Q4_0_BYTES, Q4_0_BYTES), np.uint8)
    blocks[:, :2] = np.full(len(blocks), 0.0027, np.float16).view(np.uint8).reshape(-1, 2)
    drawn = blocks.tobytes()
    with open(path, "wb") as file:
        file.write(head + b"\0" * (-len(head) % GGUF_ALIGNMENT))
        for _, _, shape in all_tensors:
            if len(shape) == 1:
                file.write(np.ones(shape, np.float32).tobytes())
            else:
                write_repeated(file, drawn, size_of(shape))
            file.write(b"\0" * (-file.tell() % GGUF_ALIGNMENT))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--layers", type=int, default=8)
    arguments = parser.parse_args()
    random = np.random.default_rng(0)
    write_folder(arguments.folder / "bf16", arguments.layers, random)
    write_gguf(arguments.folder / "q4_0.gguf", arguments.layers, random)


if __name__ == "__main__":
    main()
