"""Makes what bench/peers/server_cpu.py gives to both servers and to aiperf, from the demo's model and the example adapters.

  server_inputs.py FOLDER --model FILE.gguf --adapters DIR

FOLDER gets tokenizer/ (the model's, so that aiperf asks no hub), adapters/NAME.gguf (each adapter of DIR as llama.cpp reads it) and
prompts.json (prompts of 64 tokens; no two begin alike, so that no server takes a prompt from another). A folder that is there already
stays. Run it with the Python of the environment that install_server.sh makes.
"""
import argparse
import json
import math
import pathlib
import random
import re
import shutil

import gguf
import numpy as np
import safetensors.numpy
import tokenizers
import transformers

PROMPT_TOKENS, NUM_PROMPTS, SEED = 64, 160, 2026
MODULES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
           "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
WORDS = """the a of to and in is that for with as was on are by this be from or have an they which one you were all their there been
if more when will would who so no out up into than them can only other time new some could these two may first then do any like my now
over such our man even most made after also many before must through back years where much your way well down should because long each
just state people too mister good world life work day part year water house field small number system light story river""".split()


def metadata(reader, key):
    return reader.get_field(key).contents()


def byte_level_tokenizer(reader):
    """SmolLM2's: byte-level BPE of GPT-2, digits one by one."""
    names = metadata(reader, "tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ")) for merge in metadata(reader, "tokenizer.ggml.merges")]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE({name: i for i, name in enumerate(names)}, merges))
    pre = tokenizers.pre_tokenizers
    tokenizer.pre_tokenizer = pre.Sequence([pre.Digits(individual_digits=True), pre.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    end = names[metadata(reader, "tokenizer.ggml.eos_token_id")]
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=end)


def make_prompts(tokenizer):
    rng, prompts, begins = random.Random(SEED), [], set()
    while len(prompts) < NUM_PROMPTS:
        words = rng.choices(WORDS, k=PROMPT_TOKENS)
        text = tokenizer.decode(tokenizer.encode(" ".join(words))[:PROMPT_TOKENS])
        begin = tuple(words[:2])
        if len(tokenizer.encode(text)) == PROMPT_TOKENS and begin not in begins:
            prompts.append(text)
            begins.add(begin)
    return prompts


def interleaved(rows, num_heads):
    """The rows of q and k in the order of GGUF's Llamas: the halves of each head take turns."""
    head, width = rows.shape[0] // num_heads, rows.shape[1]
    return rows.reshape(num_heads, 2, head // 2, width).swapaxes(1, 2).reshape(rows.shape)


def scale_besides(config, module, rank):
    """PEFT's scale of a module over llama.cpp's, which is the adapter's alpha / rank."""
    alphas = (value for name, value in config["alpha_pattern"].items() if re.fullmatch(rf"(.*\.)?({name})", module))
    alpha = next(alphas, config["lora_alpha"])
    return alpha / config["lora_alpha"] * (math.sqrt(rank) if config["use_rslora"] else 1)


def write_adapter(source, path, heads):
    """PEFT's folder as one file, in f32 as llama.cpp's converter writes it; B takes the scale that the format has no place for."""
    config = json.loads((source / "adapter_config.json").read_text())
    assert not config["use_dora"], f"{source}: DoRA is not converted"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_type(gguf.GGUFType.ADAPTER)
    writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
    writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, float(config["lora_alpha"]))
    for name, values in safetensors.numpy.load_file(source / "adapter_model.safetensors").items():
        layer, module, half = re.fullmatch(r"base_model\.model\.model\.layers\.(\d+)\.(.+)\.lora_([AB])\.weight", name).groups()
        values = values.astype(np.float32)
        if half == "B":
            values = interleaved(values, heads[module]) if module in heads else values
            values *= np.float32(scale_besides(config, module, values.shape[1]))
        writer.add_tensor(f"blk.{layer}.{MODULES[module]}.weight.lora_{half.lower()}", np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--model", required=True)
    parser.add_argument("--adapters", required=True, type=pathlib.Path)
    args = parser.parse_args()
    if args.folder.exists():
        return
    part = args.folder.with_name(args.folder.name + ".part")  # an interrupted run leaves no half of a folder
    shutil.rmtree(part, ignore_errors=True)
    (part / "adapters").mkdir(parents=True)
    reader = gguf.GGUFReader(args.model)
    tokenizer = byte_level_tokenizer(reader)
    tokenizer.save_pretrained(part / "tokenizer")
    (part / "prompts.json").write_text(json.dumps(make_prompts(tokenizer), indent=1) + "\n")
    heads = {"self_attn.q_proj": metadata(reader, "llama.attention.head_count"),
             "self_attn.k_proj": metadata(reader, "llama.attention.head_count_kv")}
    for config in sorted(args.adapters.glob("*/adapter_config.json")):
        write_adapter(config.parent, part / "adapters" / f"{config.parent.name}.gguf", heads)
    part.rename(args.folder)


if __name__ == "__main__":
    main()
