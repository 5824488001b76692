"""Tiny models with adapters of PEFT, for the tests of heddle.integrations.peft."""

from __future__ import annotations

from typing import Any

import peft
import torch
import transformers

ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
ADAPTERS: dict[str, dict[str, Any]] = {
    "seven": {"r": 8, "lora_alpha": 16, "target_modules": ALL},
    "query_value": {"r": 3, "lora_alpha": 4, "target_modules": ["q_proj", "v_proj"]},
    "wide": {
        "r": 33,
        "lora_alpha": 8,
        "use_rslora": True,
        "target_modules": ["v_proj", "down_proj"],
    },
    "one": {"r": 1, "lora_alpha": 2, "lora_dropout": 0.3, "target_modules": ALL},
}
BATCHES = [
    ["seven"],
    ["__base__"],
    ["__base__", "__base__", "__base__"],
    ["one", "seven", "__base__", "wide", "seven", "query_value"],
    ["query_value", "query_value", "query_value"],
    ["wide", "__base__"],
]
VOCABULARY = 97


def config(**options: Any) -> peft.LoraConfig:
    """An adapter's configuration for inference."""
    return peft.LoraConfig(task_type="CAUSAL_LM", inference_mode=True, **options)


def randomize(model: Any) -> None:
    """Gives every adapter weights that matter: PEFT starts with B = 0."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_" in name:
                weight.normal_(std=0.1)


def round_adapters(model: Any, dtype: torch.dtype) -> None:
    """Gives every adapter in f32 weights that `dtype` holds: what PEFT loads of a file in it."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_" in name:
                weight.copy_(weight.to(dtype))


def tiny_model(
    *,
    hidden_size: int = 48,
    intermediate_size: int = 80,
    adapters: dict[str, dict[str, Any]] = ADAPTERS,
) -> Any:
    """A random Llama of two layers with the adapters, in f32 on the CPU."""
    base = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=hidden_size,
            intermediate_size=intermediate_size,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=64,
        )
    )
    with torch.no_grad():
        for weight in base.parameters():
            if weight.ndim == 2:
                weight.normal_(std=weight.shape[1] ** -0.5)
    wrapped: Any = None
    for name, options in adapters.items():
        if wrapped is None:
            wrapped = peft.get_peft_model(base, config(**options), adapter_name=name)
        else:
            wrapped.add_adapter(name, config(**options))
    randomize(wrapped)
    return wrapped.eval()


def prompt(num_rows: int, device: Any = "cpu") -> torch.Tensor:
    """Random tokens, five for each row."""
    return torch.randint(0, VOCABULARY, (num_rows, 5)).to(device)


@torch.no_grad()
def logits(model: Any, tokens: torch.Tensor, names: list[str]) -> torch.Tensor:
    """Of a prompt, then of two more tokens one by one."""
    out = model(input_ids=tokens, adapter_names=names, use_cache=True)
    parts = [out.logits]
    for token in (3, 5):
        step = torch.full((len(tokens), 1), token, device=tokens.device)
        out = model(
            input_ids=step, past_key_values=out.past_key_values, adapter_names=names, use_cache=True
        )
        parts.append(out.logits)
    return torch.cat(parts, 1)


def error_of(got: torch.Tensor, want: torch.Tensor) -> float:
    """The largest difference, as a part of the largest value wanted."""
    got, want = got.double(), want.double()
    return ((got - want).abs().max() / want.abs().max()).item()


def assert_close(got: torch.Tensor, want: torch.Tensor, limit: float = 1e-5) -> None:
    """Within `limit` of the largest value; NaN never is."""
    error = error_of(got, want)
    assert error <= limit, error


def lora_layers(model: Any) -> list[Any]:
    """All layers of PEFT."""
    return [part for part in model.modules() if isinstance(part, peft.tuners.lora.LoraLayer)]


def parts_of(model: Any) -> list[dict[str, int]]:
    """What the model and its layers hold: the names, and which objects they are."""
    return [
        {name: id(part) for name, part in module.__dict__.items()}
        for module in [model.base_model, *lora_layers(model)]
    ]
