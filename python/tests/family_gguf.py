"""GGUF files of models of transformers, with names, settings and orders of rows as llama.cpp's conversion writes them."""

from __future__ import annotations

import math
import pathlib
from typing import Any

import gguf
import numpy as np
from family_models import PLAIN

# What a row of q and k is rotated with stands next to it in these.
INTERLEAVED = {"llama", "granite", "smollm3"}
ONE_PLUS = {"gemma2", "gemma3"}  # norms hold 1 + w
FLOATS = {"F32": np.float32, "F16": np.float16}
K_BLOCK = 256  # weights
# Types that the package does not make, only read. Of each: where the f16 scale of a block lies, in bytes, where that of the minima, and
# what the minima are scaled with next to the weights, so that these are about as often below 0 as above.
K_TYPES: dict[str, tuple[int, int | None, float]] = {"Q4_K": (0, 2, 7.5), "Q5_K": (0, 2, 15.5), "Q6_K": (208, None, 0.0)}


def interleave(rows: Any, num_heads: int) -> Any:
    """Rows j and head_dim / 2 + j of a head, one after the other."""
    halves = rows.reshape(num_heads, 2, len(rows) // num_heads // 2, *rows.shape[1:])
    return halves.swapaxes(1, 2).reshape(rows.shape)


def llama3_factors(config: Any, rope: dict[str, Any]) -> Any:
    """What frequencies are divided by: 1 for short waves, `factor` for long ones, between them a blend."""
    dim = config.head_dim
    original, factor = rope["original_max_position_embeddings"], rope["factor"]
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    factors = []
    for exponent in np.arange(0, dim, 2) / dim:
        turns = original / (2 * math.pi * rope["rope_theta"] ** exponent)
        blend = min(max((turns - low) / (high - low), 0.0), 1.0)
        factors.append(1 / ((1 - blend) / factor + blend))
    return np.array(factors, np.float32)


def add_rotation(writer: gguf.GGUFWriter, arch: str, config: Any, head_dim: int) -> None:
    """rope.*, and the factors where the kind of scaling has some."""
    rope = config.rope_parameters
    if "full_attention" in rope:
        writer.add_rope_freq_base_swa(rope["sliding_attention"]["rope_theta"])
        rope = rope["full_attention"]
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_rope_dimension_count(int(rope.get("partial_rotary_factor", 1.0) * head_dim))
    kind = rope.get("rope_type", "default")
    if kind == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    elif kind == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    elif kind == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_factors(config, rope))
    elif kind == "longrope":
        original = config.original_max_position_embeddings
        scale = config.max_position_embeddings / original
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(scale) / math.log(original)))
        writer.add_tensor("rope_factors_long.weight", np.array(rope["long_factor"], np.float32))
        writer.add_tensor("rope_factors_short.weight", np.array(rope["short_factor"], np.float32))
    else:
        assert kind == "default", f"llama.cpp has no place for {kind} in {arch}"


def add_settings(writer: gguf.GGUFWriter, arch: str, config: Any) -> int:
    """The keys below the architecture's name; returns head_dim."""
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if head_dim * config.num_attention_heads != config.hidden_size:
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    if arch in ONE_PLUS or arch == "phi3":
        writer.add_sliding_window(config.sliding_window or 0)
    if arch == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if arch == "granite":
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_logit_scale(config.logits_scaling)
    return head_dim


def random_k_blocks(shape: tuple[int, ...], kind: gguf.GGMLQuantizationType, deviation: float) -> Any:
    """Rows of random blocks, drawn from torch's generator: all codes and sub-scales, scales of both signs up to a factor of 4 apart.

    The weights' standard deviation is about `deviation`.
    """
    import torch

    at, at_minima, ratio = K_TYPES[kind.name]
    rows, columns = shape
    assert columns % K_BLOCK == 0
    size = gguf.GGML_QUANT_SIZES[kind][1]
    blocks = torch.randint(256, (rows * columns // K_BLOCK, size), dtype=torch.uint8).numpy()
    scales = np.exp2(torch.rand(len(blocks)).numpy() * 2 - 1) * torch.randint(2, (len(blocks),)).mul(2).sub(1).numpy()
    factors = ratio * (0.9 + 0.2 * torch.rand(len(blocks)).numpy())
    unit = 2.0**-8  # f16 has this scale and those of the weights, which are smaller, as normal numbers

    def with_scales(factor: float) -> Any:
        blocks[:, at:at + 2] = (scales * factor).astype(np.float16).reshape(-1, 1).view(np.uint8)
        if at_minima is not None:
            blocks[:, at_minima:at_minima + 2] = (scales * factors * factor).astype(np.float16).reshape(-1, 1).view(np.uint8)
        return blocks

    of_unit = float(gguf.quants.dequantize(with_scales(unit), kind).std())
    return with_scales(unit * deviation / of_unit).reshape(rows, -1).copy()


def add_matrix(writer: gguf.GGUFWriter, name: str, values: Any, kind: gguf.GGMLQuantizationType, heads: int) -> None:
    """A matrix in a type; `values` becomes what the file says. `heads`: of rows that are interleaved, else 0."""
    import torch

    if kind.name in FLOATS:
        stored = values.numpy().astype(FLOATS[kind.name])
        said = stored.astype(np.float32)
        raw = None
    elif kind.name in K_TYPES:
        stored = random_k_blocks(tuple(values.shape), kind, float(values.std()))
        said = gguf.quants.dequantize(stored, kind)
        raw = kind
    else:
        stored = gguf.quants.quantize(values.numpy(), kind)
        said = gguf.quants.dequantize(stored, kind)
        raw = kind
    values.copy_(torch.from_numpy(said.copy()))
    writer.add_tensor(name, np.ascontiguousarray(interleave(stored, heads) if heads else stored), raw_dtype=raw)


def heads_of(arch: str, config: Any, name: str) -> int:
    """How many heads the rows of a tensor of transformers belong to where GGUF interleaves them, else 0."""
    if arch in INTERLEAVED and ".q_proj." in name:
        return config.num_attention_heads
    return config.num_key_value_heads if arch in INTERLEAVED and ".k_proj." in name else 0


def names_in_gguf(model: Any, arch: str) -> list[tuple[str, str, Any]]:
    """Of each of the model's tensors its name, that in a file, and its values. A tied head is not among them."""
    (key,) = (key for key, value in gguf.MODEL_ARCH_NAMES.items() if value == arch)
    names = gguf.get_tensor_name_map(key, model.config.num_hidden_layers)
    found = []
    for name, values in model.named_parameters():
        stored = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert stored, f"no place for {name} in {arch}"
        found.append((name, stored, values))
    return found


def write_gguf(model: Any, arch: str, path: pathlib.Path, kind: str = PLAIN, **options: Any) -> pathlib.Path:
    """The model's file with its matrices in type `kind`; the model's own become what the file says.

    Norms and biases are f32. `options` go to gguf.GGUFWriter: split_max_tensors makes parts.
    """
    import torch

    config = model.config
    writer = gguf.GGUFWriter(path, arch, **options)
    head_dim = add_settings(writer, arch, config)
    add_rotation(writer, arch, config, head_dim)
    with torch.no_grad():
        for name, stored, values in names_in_gguf(model, arch):
            heads = heads_of(arch, config, name)
            if values.ndim == 2:
                add_matrix(writer, stored, values, gguf.GGMLQuantizationType[kind], heads)
                continue
            vector = values.numpy() + np.float32(arch in ONE_PLUS and name.endswith("norm.weight"))
            writer.add_tensor(stored, np.ascontiguousarray(interleave(vector, heads) if heads else vector))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def take_matrices(model: Any, arch: str, path: pathlib.Path) -> set[str]:
    """Makes the model's matrices what the file says, as the package reads it; returns the names of their types."""
    import torch

    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    types = set()
    with torch.no_grad():
        for name, stored, values in names_in_gguf(model, arch):
            if values.ndim != 2:
                continue
            tensor = tensors[stored]
            said = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            heads = heads_of(arch, model.config, name)
            if heads:  # the other way round: from pairs to halves
                said = said.reshape(heads, -1, 2, said.shape[-1]).swapaxes(1, 2).reshape(said.shape)
            values.copy_(torch.from_numpy(np.array(said, np.float32)))
            types.add(tensor.tensor_type.name)
    return types


def quantize_with_llama_cpp(path: pathlib.Path, to: pathlib.Path, kind: str) -> pathlib.Path:
    """The file in a mixture of llama.cpp's, such as Q4_K_M, made by llama.cpp itself."""
    import llama_cpp

    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{kind}")
    params.nthread = 1
    result = llama_cpp.llama_model_quantize(str(path).encode(), str(to).encode(), params)
    assert result == 0, f"llama.cpp did not make {kind} of {path.name}"
    return to
