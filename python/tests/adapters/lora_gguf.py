"""GGUF files of LoRA adapters, as llama.cpp's convert_lora_to_gguf.py writes them."""

from __future__ import annotations

import pathlib
from typing import Any

import gguf
import numpy as np
from family_gguf import FLOATS, INTERLEAVED, interleave


def write_lora(adapted: Any, arch: str, path: pathlib.Path, kind: str = "F32", **changes: str) -> pathlib.Path:
    """The adapter of a PEFT model; its own halves become what the file says. `changes`: settings of another value."""
    import torch

    config = adapted.peft_config["default"]
    model = adapted.base_model.model.config
    writer = gguf.GGUFWriter(path, arch)
    writer.add_string("general.type", changes.get("type", "adapter"))
    writer.add_string("adapter.type", changes.get("adapter_type", "lora"))
    writer.add_float32("adapter.lora.alpha", float(config.lora_alpha))
    if config.alora_invocation_tokens:
        writer.add_array("adapter.alora.invocation_tokens", config.alora_invocation_tokens)
    (key,) = (key for key, value in gguf.MODEL_ARCH_NAMES.items() if value == arch)
    names = gguf.get_tensor_name_map(key, model.num_hidden_layers)
    with torch.no_grad():
        for name, values in adapted.named_parameters():
            if "lora_" not in name:
                continue
            values.copy_(torch.from_numpy(values.numpy().astype(FLOATS[kind]).astype(np.float32)))
            module = name.removeprefix("base_model.model.").split(".lora_")[0]
            half = "lora_a" if "_A" in name else "lora_b"
            stored = values.numpy().astype(FLOATS[kind])
            if "lora_embedding_A" in name:
                stored = stored.T
            if half == "lora_b" and arch in INTERLEAVED and module.endswith(("q_proj", "k_proj")):
                is_q = module.endswith("q_proj")
                stored = interleave(stored, model.num_attention_heads if is_q else model.num_key_value_heads)
            tensor = names.get_name(module + ".weight", try_suffixes=(".weight",))
            writer.add_tensor(f"{tensor}.{half}", np.ascontiguousarray(stored))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
