"""Tiny random models of every family, saved by transformers: what test_families.py compares heddle with.

HEDDLE_TEST_DEVICE says where heddle computes: cpu, the default, or cuda. There it rounds to 16 bits: to f16 where the file has f16, else
to bf16, whose errors are 8 times as large. So for a GPU the models have weights in f16.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import os
import pathlib
from importlib.metadata import version
from typing import Any

import pytest

DEVICE = os.environ.get("HEDDLE_TEST_DEVICE", "cpu")
ON_CPU = DEVICE == "cpu"
PLAIN = "F32" if ON_CPU else "F16"  # type of weights where a test asks for none
VOCAB = 48
SMALL: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 160,
    "rms_norm_eps": 0.05,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 40}
LONGROPE = {"rope_type": "longrope", "short_factor": [1.0, 1.1, 1.3], "long_factor": [1.5, 2.5, 4.0]}
GEMMA3 = {"full_attention": {"rope_type": "default", "rope_theta": 20000.0},
          "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}
GEMMA3_LINEAR = {"full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 20000.0},
                 "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}


@dataclasses.dataclass(frozen=True)
class Case:
    """A configuration of a family; `gguf` where llama.cpp has a place for all of it."""

    name: str
    config: str  # a class of transformers
    model: str
    settings: dict[str, Any]
    gguf: str = ""  # general.architecture
    rope: dict[str, Any] = dataclasses.field(default_factory=dict)


def case(name: str, prefix: str, gguf: str = "", rope: dict[str, Any] | None = None, config: str = "", **settings: Any) -> Case:
    return Case(name, config or f"{prefix}Config", f"{prefix}ForCausalLM", settings, gguf, rope or {})


BIASES = {"attention_bias": True, "mlp_bias": True}
CAPS = {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 4.0}  # so low that their effect is far above the rounding of 16 bits
CASES = [
    case("llama", "Llama", "llama"),
    case("llama-tied-biases", "Llama", "llama", tie_word_embeddings=True, **BIASES),
    case("llama-gelu", "Llama", hidden_act="gelu"),
    case("llama-llama3", "Llama", "llama", LLAMA3, head_dim=12),
    case("llama-linear", "Llama", "llama", {"rope_type": "linear", "factor": 4.0}),
    case("llama-dynamic", "Llama", "", {"rope_type": "dynamic", "factor": 4.0}, max_position_embeddings=40),
    case("llama-yarn", "Llama", "llama", YARN),
    case("mistral", "Mistral", "", sliding_window=7),
    case("mistral-full", "Mistral", "llama", sliding_window=None, head_dim=12, tie_word_embeddings=True),
    case("qwen2", "Qwen2", "qwen2"),
    case("qwen2-window", "Qwen2", "", use_sliding_window=True, sliding_window=9, max_window_layers=1, tie_word_embeddings=True),
    case("qwen2-yarn", "Qwen2", "qwen2", YARN, tie_word_embeddings=True),
    case("qwen3", "Qwen3", "qwen3", head_dim=12),
    case("qwen3-biases", "Qwen3", "", head_dim=12, attention_bias=True, tie_word_embeddings=True, use_sliding_window=True,
         sliding_window=9, max_window_layers=1),
    case("gemma2", "Gemma2", "gemma2", head_dim=12, query_pre_attn_scalar=12, sliding_window=7, num_hidden_layers=4, **CAPS),
    case("gemma2-scaled", "Gemma2", "", head_dim=12, query_pre_attn_scalar=3, sliding_window=7, attention_bias=True,
         tie_word_embeddings=False, **CAPS),
    case("gemma3", "Gemma3", "gemma3", GEMMA3, config="Gemma3TextConfig", head_dim=12, query_pre_attn_scalar=12,
         sliding_window=7, num_hidden_layers=7),
    case("gemma3-linear", "Gemma3", "gemma3", GEMMA3_LINEAR, config="Gemma3TextConfig", head_dim=12,
         query_pre_attn_scalar=12, sliding_window=7, num_hidden_layers=7),
    case("gemma3-scaled", "Gemma3", "", GEMMA3, config="Gemma3TextConfig", head_dim=12, query_pre_attn_scalar=20,
         sliding_window=7, num_hidden_layers=7, attention_bias=True, tie_word_embeddings=False,
         final_logit_softcapping=4.0),
    case("phi3", "Phi3", "phi3", sliding_window=9),
    case("phi3-longrope", "Phi3", "phi3", LONGROPE | {"partial_rotary_factor": 0.75},
         original_max_position_embeddings=40, tie_word_embeddings=True),
    case("granite", "Granite", "granite", embedding_multiplier=6.0, residual_multiplier=0.3, attention_multiplier=0.2,
         logits_scaling=4.0),
    case("granite-biases", "Granite", "granite", attention_multiplier=0.2, tie_word_embeddings=True, **BIASES),
    case("olmo2", "Olmo2", "olmo2"),
    case("olmo2-biases", "Olmo2", "", attention_bias=True, tie_word_embeddings=True),
    case("smollm3", "SmolLM3", "smollm3", num_hidden_layers=5),
    case("smollm3-window", "SmolLM3", "", num_hidden_layers=5, use_sliding_window=True, sliding_window=7,
         no_rope_layer_interval=3, tie_word_embeddings=False, **BIASES),
]


def with_block_widths(case: Case) -> Case:
    """The case with rows that consist of whole blocks of 32 weights, as quantised types need them."""
    wide = {"intermediate_size": 64}
    if "head_dim" in case.settings:
        wide["head_dim"] = 16
    if case.settings.get("query_pre_attn_scalar") == case.settings.get("head_dim"):
        wide["query_pre_attn_scalar"] = 16
    known = {key: value for key, value in wide.items() if key in case.settings or key == "intermediate_size"}
    return dataclasses.replace(case, settings=case.settings | known)


def with_k_block_widths(case: Case) -> Case:
    """The case with rows that consist of whole blocks of 256 weights, as the K types need them; a head is no wider than before."""
    of_32 = with_block_widths(case)
    heads = 256 // of_32.settings.get("head_dim", 8)
    wide = {"hidden_size": 256, "intermediate_size": 256, "num_attention_heads": heads, "num_key_value_heads": heads // 2}
    return dataclasses.replace(of_32, settings=of_32.settings | wide)


def make_model(case: Case, seed: int) -> Any:
    """The model in f32, its norms and biases random too; its weights are what type PLAIN has."""
    import torch
    import transformers

    if case.rope and case.rope.get("rope_type") == "longrope" and tuple(map(int, version("transformers").split(".")[:2])) < (5, 23):
        pytest.skip("skipped: generate() of transformers before 5.23 turns positions of longrope otherwise")
    settings = SMALL | case.settings
    if case.rope:
        is_by_layer = "full_attention" in case.rope
        settings["rope_parameters"] = case.rope if is_by_layer else {"rope_theta": 10000.0} | case.rope
    config = getattr(transformers, case.config)(**settings, attn_implementation="eager")  # others may leave soft caps out
    torch.manual_seed(seed)
    model = getattr(transformers, case.model)(config).to(torch.float32).eval()
    with torch.no_grad():
        for name, values in model.named_parameters():
            if "norm" in name:
                values.add_(torch.randn_like(values) * 0.3)
            elif name.endswith("bias"):
                values.copy_(torch.randn_like(values) * 0.5)
            else:
                scale = 1.0 if "embed" in name else 0.25 * math.sqrt(SMALL["hidden_size"] / config.hidden_size)
                values.copy_(torch.randn_like(values) * scale)
    model.generation_config.eos_token_id = None  # answers of equal length
    model.generation_config.pad_token_id = 0
    return model if ON_CPU else round_to(model, torch.float16)


def round_to(model: Any, dtype: Any) -> Any:
    """The model with weights that the dtype has, in f32."""
    import torch

    with torch.no_grad():
        for values in model.parameters():
            values.copy_(values.to(dtype).float())
    return model


def save(model: Any, folder: pathlib.Path, dtype: Any = None, **options: Any) -> pathlib.Path:
    """A folder of the model, its weights in the dtype, by default PLAIN."""
    if dtype is None and not ON_CPU:
        import torch

        dtype = torch.float16
    saved = model if dtype is None else copy.deepcopy(model).to(dtype)
    saved.save_pretrained(folder, **options)
    return folder


def make_adapter(model: Any, folder: pathlib.Path, seed: int) -> Any:
    """A random adapter on all linear layers, saved; returns the model with it."""
    import peft
    import torch

    torch.manual_seed(seed)
    config = peft.LoraConfig(r=3, lora_alpha=4, target_modules="all-linear", task_type="CAUSAL_LM")
    adapted = peft.get_peft_model(model, config).eval()
    with torch.no_grad():
        for name, values in adapted.named_parameters():
            if "lora_" in name:
                values.copy_(torch.randn_like(values) * 0.2)
    adapted.save_pretrained(folder)
    return adapted
