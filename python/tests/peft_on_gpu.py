"""What the tests of heddle.integrations.peft on a GPU share. Needs peft and transformers, too."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from torch_on_gpu import GPU, torch

pytest.importorskip("peft")
pytest.importorskip("transformers")

from heddle.integrations.peft import accelerate, restore
from peft_models import ADAPTERS, logits

__all__ = [
    "EVEN",
    "LIMITS",
    "all_ranks",
    "captured",
    "check_layer",
    "fail_on_warnings",
    "whole_call",
    "with_peft",
]

# PEFT rounds h, B h and the scaled delta to 16 bits, heddle the sum alone.
LIMITS = {torch.float16: 0.01, torch.bfloat16: 0.08}
STEP = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
"""Largest relative error of one rounding."""

# Ranks that no kernel loads in vectors, and such that all do.
EVEN = {
    name: options | {"r": rank}
    for (name, options), rank in zip(ADAPTERS.items(), (16, 8, 64, 32), strict=True)
}
all_ranks = pytest.mark.parametrize("adapters", [ADAPTERS, EVEN], ids=["odd", "even"])


@pytest.fixture(autouse=True)
def fail_on_warnings() -> Iterator[None]:
    """A call that stays with PEFT says so, and then no test of ours would see the difference."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="heddle leaves to PEFT")
        yield


def with_peft(model: Any, tokens: torch.Tensor, names: list[str]) -> torch.Tensor:
    """What PEFT answers by itself."""
    assert restore(model)
    result = logits(model, tokens, names)
    accelerate(model)
    return result


@torch.no_grad()
def check_layer(layer: Any, tokens: int, names: list[str]) -> None:
    """Holds one call against the definition: what the base layer gives, in float64, rounded once.

    Rows whose adapter the layer lacks keep the base layer's bits.
    """
    weight = layer.base_layer.weight
    x = torch.randn(len(names), tokens, weight.shape[1], device=weight.device).to(weight.dtype)
    base = layer.base_layer(x)
    want = base.double()
    for row, name in enumerate(names):
        if name in layer.lora_A:
            a, b = (half[name].weight.double() for half in (layer.lora_A, layer.lora_B))
            want[row] += layer.scaling[name] * (x[row].double() @ a.T @ b.T)
    got = layer(x, adapter_names=names)
    assert got.dtype == weight.dtype
    limit = 1.01 * STEP[weight.dtype] * want.abs() + 5e-5 * want.abs().max()
    wrong = ~((got.double() - want).abs() <= limit)
    assert not wrong.any(), f"{int(wrong.sum())} of {wrong.numel()} differ"
    for row, name in enumerate(names):
        assert torch.equal(got[row], base[row]) == (name not in layer.lora_A)


def whole_call(model: Any, tokens: torch.Tensor, names: list[str]) -> Callable[[], torch.Tensor]:
    """A call that can be captured: with a mask of its own, since transformers looks at its own."""
    rows, length = tokens.shape
    dtype = model.base_model.model.lm_head.weight.dtype
    above = torch.full((length, length), -torch.inf, device=GPU, dtype=dtype).triu(1)
    mask = above.expand(rows, 1, length, length).contiguous()

    @torch.no_grad()
    def call() -> torch.Tensor:
        result: torch.Tensor = model(
            input_ids=tokens, attention_mask=mask, adapter_names=names, use_cache=False
        ).logits
        return result

    return call


def captured(call: Callable[[], torch.Tensor]) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
    """A graph of the call, and where each replay leaves its result."""
    call()  # to warm up
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()
    return graph, result
