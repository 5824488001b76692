"""Makes a model of Qwen2-0.5B's shape with random weights, as GGUF in Q4_0 and bf16, and eight random adapters.

  random_qwen2.py FOLDER

Speed does not depend on what weights are, so none need be fetched. FOLDER/q4_0.gguf has the types that llama.cpp's own
quantizer gives a model of this shape: Q4_0, and Q8_0 for the embedding, which is the head too. The vocabulary has the
right size, but hardly more than bytes in it. Each folder of FOLDER/adapters holds an adapter as PEFT writes it and,
in adapter.gguf, the same one for llama.cpp. A folder that is there already stays. Run it with the Python of the
environment that install.sh makes.
"""
import json
import pathlib
import shutil
import sys

import gguf
import numpy as np
import safetensors.numpy

HIDDEN, MLP, LAYERS, Q_HEADS, KV_HEADS, HEAD_DIM, VOCAB = 896, 4864, 24, 14, 2, 64, 151936
NUM_ADAPTERS, RANK = 8, 16
SEED = 2026

# Name in the GGUF file, name in transformers, outputs, inputs, whether it has a bias.
PROJECTIONS = [("attn_q", "self_attn.q_proj", Q_HEADS * HEAD_DIM, HIDDEN, True),
               ("attn_k", "self_attn.k_proj", KV_HEADS * HEAD_DIM, HIDDEN, True),
               ("attn_v", "self_attn.v_proj", KV_HEADS * HEAD_DIM, HIDDEN, True),
               ("attn_output", "self_attn.o_proj", HIDDEN, Q_HEADS * HEAD_DIM, False),
               ("ffn_gate", "mlp.gate_proj", MLP, HIDDEN, False),
               ("ffn_up", "mlp.up_proj", MLP, HIDDEN, False),
               ("ffn_down", "mlp.down_proj", HIDDEN, MLP, False)]
MATRIX_TYPES = {"q4_0": gguf.GGMLQuantizationType.Q4_0, "bf16": gguf.GGMLQuantizationType.BF16}
EMBEDDING_TYPES = {"q4_0": gguf.GGMLQuantizationType.Q8_0, "bf16": gguf.GGMLQuantizationType.BF16}


def normal(rng, deviation, *shape):
    return rng.standard_normal(shape, dtype=np.float32) * np.float32(deviation)


def byte_tokens():
    """A character for each byte, as byte-level BPE spells it."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return [chr(byte) for byte in plain] + [chr(256 + i) for i in range(len(others))]


def add_vocabulary(writer):
    tokens = [*byte_tokens(), "ab"]
    types = [gguf.TokenType.NORMAL] * len(tokens)
    while len(tokens) < VOCAB - 1:
        tokens.append(f"[unused{len(tokens)}]")
        types.append(gguf.TokenType.UNUSED)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([*tokens, "<|endoftext|>"])
    writer.add_token_types([*types, gguf.TokenType.CONTROL])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(VOCAB - 1)
    writer.add_add_bos_token(False)


def write_model(path, matrix_type, embedding_type):
    writer = gguf.GGUFWriter(path, "qwen2")
    writer.add_name("random weights, shape of Qwen2-0.5B")
    writer.add_block_count(LAYERS)
    writer.add_context_length(32768)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(MLP)
    writer.add_head_count(Q_HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
    add_vocabulary(writer)
    rng = np.random.default_rng(SEED)  # both files have the same weights before they are rounded

    def add_matrix(name, rows, columns, kind):
        values = normal(rng, 0.02, rows, columns)
        writer.add_tensor(f"{name}.weight", gguf.quants.quantize(values, kind), raw_dtype=kind)

    add_matrix("token_embd", VOCAB, HIDDEN, embedding_type)
    writer.add_tensor("output_norm.weight", np.ones(HIDDEN, np.float32))
    for layer in range(LAYERS):
        for norm in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{norm}.weight", np.ones(HIDDEN, np.float32))
        for name, _, rows, columns, has_bias in PROJECTIONS:
            add_matrix(f"blk.{layer}.{name}", rows, columns, matrix_type)
            if has_bias:
                writer.add_tensor(f"blk.{layer}.{name}.bias", normal(rng, 0.02, rows))
    write(writer)


def write(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_adapter(folder, seed):
    rng = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(folder / "adapter.gguf", "qwen2")
    writer.add_type(gguf.GGUFType.ADAPTER)
    writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
    writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, float(RANK))
    peft = {}
    for layer in range(LAYERS):
        for name, module, rows, columns, _ in PROJECTIONS:
            for half, shape in (("A", (RANK, columns)), ("B", (rows, RANK))):
                values = normal(rng, 0.01, *shape).astype(np.float16)
                peft[f"base_model.model.model.layers.{layer}.{module}.lora_{half}.weight"] = values
                writer.add_tensor(f"blk.{layer}.{name}.weight.lora_{half.lower()}", values)
    write(writer)
    safetensors.numpy.save_file(peft, folder / "adapter_model.safetensors")
    modules = [module.split(".")[1] for _, module, *_ in PROJECTIONS]
    (folder / "adapter_config.json").write_text(json.dumps(
        dict(peft_type="LORA", r=RANK, lora_alpha=RANK, target_modules=modules), indent=1) + "\n")


def main():
    folder = pathlib.Path(sys.argv[1])
    if folder.exists():
        return
    part = folder.with_name(folder.name + ".part")  # an interrupted run leaves no half of a folder
    shutil.rmtree(part, ignore_errors=True)
    for i in range(NUM_ADAPTERS):
        adapter = part / "adapters" / f"random-{i}"
        adapter.mkdir(parents=True)
        write_adapter(adapter, SEED + 1 + i)
    for name, kind in MATRIX_TYPES.items():
        print(f"making {folder / name}.gguf", file=sys.stderr, flush=True)
        write_model(part / f"{name}.gguf", kind, EMBEDDING_TYPES[name])
    part.rename(folder)


if __name__ == "__main__":
    main()
