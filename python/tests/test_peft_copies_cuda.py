"""heddle.integrations.peft on a GPU with adapters in f32 next to a base model of 16 bits."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from peft_on_gpu import (
    EVEN,
    LIMITS,
    all_ranks,
    captured,
    check_layer,
    fail_on_warnings,
    whole_call,
    with_peft,
)
from torch_on_gpu import GPU, each_half, seed_of_torch, torch

from heddle.integrations.peft import accelerate
from peft_models import (
    BATCHES,
    VOCABULARY,
    assert_close,
    logits,
    lora_layers,
    prompt,
    randomize,
    round_adapters,
    tiny_model,
)

__all__ = ["fail_on_warnings", "seed_of_torch"]


def upcast_model(
    dtype: torch.dtype, adapters: dict[str, dict[str, Any]] = EVEN, *, exact: bool = True
) -> Any:
    """What PEFT makes by default of a base model of 16 bits and adapters: these are in f32.

    exact: with values as of a file in the base model's dtype.
    """
    model = tiny_model(hidden_size=64, intermediate_size=96, adapters=adapters)
    for name, weight in model.named_parameters():
        if "lora_" not in name:
            weight.data = weight.data.to(dtype)
    if exact:
        round_adapters(model, dtype)
    return model.to(GPU)


@each_half
@all_ranks
@pytest.mark.parametrize("names", BATCHES, ids=" ".join)
def test_adapters_that_peft_made_f32_are_copied(
    dtype: torch.dtype, adapters: dict[str, Any], names: list[str]
) -> None:
    model, tokens = upcast_model(dtype, adapters), prompt(len(names), GPU)
    want = logits(model, tokens, names)
    acceleration = accelerate(model)
    assert acceleration.num_layers == 14
    assert acceleration.left_to_peft == {}
    got = logits(model, tokens, names)
    assert_close(got, want, LIMITS[dtype])
    for layer in lora_layers(model):
        check_layer(layer, 9, ["seven", "__base__", "one", "query_value", "wide", "seven"])
    for name, weight in model.named_parameters():
        if "lora_" in name:
            assert weight.dtype == torch.float32
            weight.data = weight.data.to(dtype)
    assert torch.equal(logits(model, tokens, names), got)


@each_half
def test_copies_follow_weights_that_change(dtype: torch.dtype) -> None:
    model, tokens, names = upcast_model(dtype), prompt(3, GPU), ["seven", "wide", "__base__"]
    accelerate(model)
    layer = model.base_model.model.model.layers[0].self_attn.v_proj
    seen = [logits(model, tokens, names)]

    def check() -> None:
        got = logits(model, tokens, names)
        assert not torch.equal(got, seen[-1])
        assert_close(got, with_peft(model, tokens, names), LIMITS[dtype])
        check_layer(layer, 3, names)
        seen.append(got)

    with torch.no_grad():
        layer.lora_B["wide"].weight.mul_(2)
        check()
        layer.lora_A["seven"].weight[3].neg_()
        check()
    layer.lora_A["seven"].weight.data = torch.ones(16, 64, device=GPU)
    check()
    randomize(model)
    round_adapters(model, dtype)
    check()


@each_half
def test_adapters_trained_in_f32_are_left_to_peft_or_rounded(dtype: torch.dtype) -> None:
    model, tokens = upcast_model(dtype, exact=False), prompt(3, GPU)
    names = ["seven", "wide", "__base__"]
    want = logits(model, tokens, names)
    with pytest.warns(UserWarning, match="accelerate.model, round_weights=True. rounds them"):
        acceleration = accelerate(model)
    assert acceleration.num_layers == 0
    assert sorted(acceleration.left_to_peft.values()) == [4, 4, 14, 14]
    assert torch.equal(logits(model, tokens, names), want)
    assert accelerate(model, round_weights=True) is acceleration
    got = logits(model, tokens, names)
    assert (acceleration.num_layers, acceleration.left_to_peft) == (14, {})
    assert_close(got, want, 2 * LIMITS[dtype])
    assert not torch.equal(got, want)
    accelerate(model)
    assert torch.equal(logits(model, tokens, names), want)
    round_adapters(model, dtype)
    assert torch.equal(logits(model, tokens, names), got)
    assert acceleration.left_to_peft == {}


@each_half
def test_a_graph_reads_the_copies_of_its_capture(dtype: torch.dtype) -> None:
    model, tokens = upcast_model(dtype), prompt(4, GPU)
    names = ["seven", "__base__", "wide", "one"]
    accelerate(model)
    call = whole_call(model, tokens, names)
    graph, result = captured(call)
    for _ in range(2):
        tokens.copy_(torch.randint(0, VOCABULARY, tokens.shape))
        graph.replay()
        assert torch.equal(result, call())
    graph.replay()
    before = result.clone()
    with torch.no_grad():
        for layer in lora_layers(model):
            layer.lora_B["seven"].weight.mul_(2)
    other = torch.cuda.CUDAGraph()
    with (
        pytest.raises(RuntimeError, match="has not seen the adapters.* before the capture"),
        torch.cuda.graph(other),
    ):
        torch.zeros(1, device=GPU).add_(1)  # so that the graph is not empty
        call()
    want = call()
    assert not torch.equal(want, before)
    gc.collect()
    torch.cuda.empty_cache()
    graph.replay()
    assert torch.equal(result, before)
    graph, result = captured(call)
    graph.replay()
    assert torch.equal(result, want)
