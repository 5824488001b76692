"""heddle.integrations.peft on a GPU, against PEFT's own mixed batches there. Needs peft, too."""

from __future__ import annotations

import gc
import itertools
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

from heddle.integrations.peft import accelerate, restore
from peft_models import (
    BATCHES,
    VOCABULARY,
    assert_close,
    config,
    error_of,
    logits,
    lora_layers,
    prompt,
    randomize,
    round_adapters,
    tiny_model,
)

__all__ = ["fail_on_warnings", "seed_of_torch"]


def half_model(
    dtype: torch.dtype, adapters: dict[str, dict[str, Any]] = EVEN, device: Any = GPU
) -> Any:
    """The tiny model with features that are multiples of 16; adapters are of 16 bits, too."""
    model = tiny_model(hidden_size=64, intermediate_size=96, adapters=adapters)
    return model.to(device=device, dtype=dtype)


@each_half
@all_ranks
@pytest.mark.parametrize("tokens", [1, 9, 300])
def test_a_layer_computes_the_definition(
    dtype: torch.dtype, adapters: dict[str, Any], tokens: int
) -> None:
    model = half_model(dtype, adapters)
    acceleration = accelerate(model)
    for layer in lora_layers(model):
        check_layer(layer, tokens, ["seven", "__base__", "one", "query_value", "wide", "seven"])
    assert acceleration.num_layers == 14
    assert acceleration.left_to_peft == {}


@each_half
@all_ranks
@pytest.mark.parametrize("names", BATCHES, ids=" ".join)
def test_mixed_batches_have_peft_logits(
    dtype: torch.dtype, adapters: dict[str, Any], names: list[str]
) -> None:
    model, tokens = half_model(dtype, adapters), prompt(len(names), GPU)
    want = logits(model, tokens, names)
    acceleration = accelerate(model)
    assert accelerate(model) is acceleration
    got = logits(model, tokens, names)
    assert_close(got, want, LIMITS[dtype])
    if any(name != "__base__" for name in names):
        base = logits(model, tokens, ["__base__"] * len(names))
        assert error_of(got, base) > LIMITS[dtype]
    assert acceleration.left_to_peft == {}
    assert restore(model)
    assert torch.equal(logits(model, tokens, names), want)


@each_half
def test_a_row_has_the_same_bits_in_any_batch_of_adapters(dtype: torch.dtype) -> None:
    model, tokens = half_model(dtype), prompt(4, GPU)
    accelerate(model)
    first = logits(model, tokens, ["seven", "wide", "one", "__base__"])
    second = logits(model, tokens, ["seven", "seven", "seven", "seven"])
    assert torch.equal(first[0], second[0])
    assert not torch.equal(first[1], second[1])
    assert torch.equal(logits(model, tokens, ["seven", "wide", "one", "__base__"]), first)


@each_half
def test_generate_chooses_tokens_that_are_best_for_peft(dtype: torch.dtype) -> None:
    """Within what the two differ by: their tokens may part where two are equally good."""
    model, tokens = half_model(dtype), prompt(3, GPU)
    names, end = ["one", "__base__", "seven"], 2
    acceleration = accelerate(model)
    made = model.generate(
        input_ids=tokens,
        attention_mask=torch.ones_like(tokens),
        adapter_names=names,
        min_new_tokens=6,
        max_new_tokens=6,
        do_sample=False,
        eos_token_id=end,
        pad_token_id=0,
    )
    assert made.shape == (3, 11)
    assert acceleration.left_to_peft == {}
    restore(model)
    with torch.no_grad():
        scores = model(input_ids=made[:, :-1], adapter_names=names).logits[:, 4:].float()
    largest = scores.abs().max()
    scores[..., end] = -torch.inf  # which min_new_tokens forbids
    chosen = scores.gather(-1, made[:, 5:, None]).squeeze(-1)
    assert ((scores.amax(-1) - chosen) <= LIMITS[dtype] * largest).all()


@each_half
def test_weights_that_change_are_seen(dtype: torch.dtype) -> None:
    model, tokens, names = half_model(dtype), prompt(3, GPU), ["seven", "wide", "__base__"]
    accelerate(model)

    def check() -> torch.Tensor:
        got = logits(model, tokens, names)
        assert_close(got, with_peft(model, tokens, names), LIMITS[dtype])
        for layer in lora_layers(model):
            check_layer(layer, 3, names)
        return got

    def random(*shape: int) -> torch.Tensor:
        return (0.2 * torch.randn(*shape, device=GPU)).to(dtype)

    layer = model.base_model.model.model.layers[0].self_attn.v_proj
    seen = [check()]
    with torch.no_grad():
        layer.lora_B["wide"].weight.mul_(2)  # in place
        seen.append(check())
        layer.lora_A["wide"].weight.data = random(64, 64)  # other memory
        seen.append(check())
        layer.lora_A["seven"].weight = torch.nn.Parameter(random(16, 64), requires_grad=False)
        seen.append(check())
        a, b = layer.lora_A["wide"].weight, layer.lora_B["wide"].weight
        a.data, b.data = a.data[:5], b.data[:, :5].contiguous()  # from now on not in vectors
        seen.append(check())
    layer.set_scale("wide", 0.5)
    seen.append(check())
    randomize(model)
    seen.append(check())
    for before, after in itertools.pairwise(seen):
        assert not torch.equal(before, after)
        assert torch.equal(before[2], after[2])


@each_half
def test_adapters_come_and_go(dtype: torch.dtype) -> None:
    model, tokens = half_model(dtype), prompt(3, GPU)
    accelerate(model)
    logits(model, tokens, ["seven", "wide", "one"])
    model.add_adapter("late", config(r=40, lora_alpha=40, target_modules=["q_proj", "lm_head"]))
    model.eval()
    randomize(model)
    round_adapters(model, dtype)  # PEFT made it in f32
    names = ["late", "seven", "__base__"]
    assert_close(logits(model, tokens, names), with_peft(model, tokens, names), LIMITS[dtype])
    assert accelerate(model).num_layers == 15
    model.delete_adapter("wide")
    names = ["one", "late", "seven"]
    assert_close(logits(model, tokens, names), with_peft(model, tokens, names), LIMITS[dtype])
    for layer in lora_layers(model):
        check_layer(layer, 2, names)
    assert accelerate(model).left_to_peft == {}


def test_a_model_may_move() -> None:
    dtype, names, tokens = torch.bfloat16, ["seven", "wide", "__base__"], prompt(3)
    model = half_model(dtype, device="cpu")
    acceleration = accelerate(model)
    on_cpu = logits(model, tokens, names)
    model.to(GPU)
    on_gpu = logits(model, tokens.to(GPU), names)
    assert on_gpu.device == GPU
    assert_close(on_gpu, with_peft(model, tokens.to(GPU), names), LIMITS[dtype])
    assert_close(on_gpu.cpu(), on_cpu, 2 * LIMITS[dtype])  # the base model differs, too
    model.to("cpu")
    assert_close(logits(model, tokens, names), on_cpu, LIMITS[dtype])
    model.to(GPU)
    assert_close(logits(model, tokens.to(GPU), names), on_gpu, LIMITS[dtype])
    assert accelerate(model).left_to_peft == {}
    assert acceleration.num_layers == 14


def test_models_in_f32_are_left_to_peft() -> None:
    model, tokens, names = tiny_model().to(GPU), prompt(3, GPU), ["seven", "wide", "__base__"]
    want = logits(model, tokens, names)
    with pytest.warns(UserWarning, match="where heddle takes f16 and bf16"):
        acceleration = accelerate(model, round_weights=True)
    assert torch.equal(logits(model, tokens, names), want)
    assert acceleration.num_layers == 0
    assert sorted(acceleration.left_to_peft.values()) == [4, 4, 14, 14]
    model.to(torch.bfloat16)
    got = logits(model, tokens, names)
    assert acceleration.left_to_peft == {}
    assert acceleration.num_layers == 14
    assert_close(got, with_peft(model, tokens, names), LIMITS[torch.bfloat16])


def test_autocast_and_gradients_are_left_to_peft() -> None:
    model, tokens, names = half_model(torch.bfloat16), prompt(2, GPU), ["seven", "one"]
    accelerate(model)
    with torch.autocast("cuda", torch.bfloat16):
        with pytest.warns(UserWarning, match="calls under autocast"):
            got = logits(model, tokens, names)
        assert torch.equal(got, logits(model, tokens, names))
        restore(model)
        assert torch.equal(got, logits(model, tokens, names))
    acceleration = accelerate(model)
    for name, weight in model.named_parameters():
        weight.requires_grad_("lora_" in name)
    with pytest.warns(UserWarning, match="calls that need gradients"):
        model(input_ids=tokens, adapter_names=names).logits.float().sum().backward()
    layer = model.base_model.model.model.layers[0].mlp.up_proj
    assert layer.lora_A["one"].weight.grad is not None
    assert acceleration.left_to_peft == {"calls that need gradients": 14}


@torch.no_grad()
def test_calls_may_come_on_any_stream() -> None:
    """Tables are made anew on one stream while calls with the old ones run on others."""
    model, names = half_model(torch.float16), ["seven", "one", "__base__", "seven"]
    accelerate(model)
    layer = model.base_model.model.model.layers[0].mlp.down_proj
    x = torch.randn(4, 40, 96, device=GPU).half()
    want = []
    for scaling in (1.0, 0.25):
        layer.scaling["one"] = scaling
        want.append(layer(x, adapter_names=names))
    assert not torch.equal(*want)
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in range(4)]
    results = []
    for turn in range(32):
        layer.scaling["one"] = (1.0, 0.25)[turn // 4 % 2]
        for stream in streams[turn % 4 :] + streams[: turn % 4]:
            with torch.cuda.stream(stream):
                results.append((turn // 4 % 2, layer(x, adapter_names=names)))
    torch.cuda.synchronize()
    for index, result in results:
        assert torch.equal(result, want[index])


@each_half
@all_ranks
def test_a_graph_of_the_whole_call_replays_with_other_inputs(
    dtype: torch.dtype, adapters: dict[str, Any]
) -> None:
    model, tokens = half_model(dtype, adapters), prompt(4, GPU)
    names = ["seven", "__base__", "wide", "one"]
    want = with_peft_call = whole_call(model, tokens, names)()
    accelerate(model)
    call = whole_call(model, tokens, names)
    graph, result = captured(call)
    graph.replay()
    assert_close(result, with_peft_call, LIMITS[dtype])
    for change in range(3):
        tokens.copy_(torch.randint(0, VOCABULARY, tokens.shape))
        if change == 1:
            randomize(model)  # in place: replays see it
        before, want = want, call()
        assert not torch.equal(before, want)
        graph.replay()
        assert torch.equal(result, want)


def test_a_graph_outlives_what_changes_after_it() -> None:
    """It goes on with the adapters that it was captured with."""
    dtype = torch.bfloat16
    model, tokens, names = half_model(dtype), prompt(3, GPU), ["seven", "__base__", "wide"]
    acceleration = accelerate(model)
    call = whole_call(model, tokens, names)
    graph, result = captured(call)
    graph.replay()
    want = result.clone()
    model.add_adapter("late", config(r=16, target_modules=["q_proj", "up_proj"]))
    model.to(dtype)
    model.eval()
    with torch.no_grad():
        for layer in lora_layers(model):  # other tables, and weights in other places
            for half in (layer.lora_A, layer.lora_B):
                for part in half.values():
                    part.weight.data = torch.zeros_like(part.weight)
    assert not torch.equal(call(), want)
    acceleration._batches.kept.clear()
    gc.collect()
    torch.cuda.empty_cache()
    junk = [torch.full((1 << 20,), 255, dtype=torch.uint8, device=GPU) for _ in range(64)]
    graph.replay()
    assert torch.equal(result, want)
    assert len(junk) == 64
    assert restore(model)


@torch.no_grad()
def test_nothing_is_made_while_a_graph_is_captured() -> None:
    model = half_model(torch.float16)
    accelerate(model)
    layer = model.base_model.model.model.layers[0].mlp.up_proj
    x = torch.randn(2, 5, 64, device=GPU).half()
    want = layer(x, adapter_names=["seven", "one"])
    torch.cuda.synchronize()
    for names, reason in ((["one", "one"], "this batch"), (["seven", "one"], "the adapters")):
        if reason == "the adapters":
            layer.set_scale("one", 3.0)
        graph = torch.cuda.CUDAGraph()
        with (
            pytest.raises(RuntimeError, match=f"has not seen {reason}.* before the capture"),
            torch.cuda.graph(graph),
        ):
            torch.zeros(1, device=GPU).add_(1)  # so that the graph is not empty
            layer(x, adapter_names=names)
    assert not torch.equal(layer(x, adapter_names=["seven", "one"]), want)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs a second CUDA device")
def test_each_layer_works_on_its_own_device() -> None:
    model, second = half_model(torch.bfloat16), torch.device("cuda", 1)
    names = ["seven", "__base__", "one", "query_value", "wide"]
    acceleration = accelerate(model)
    model.base_model.model.model.layers[1].to(second)
    assert torch.cuda.current_device() == 0
    for layer in lora_layers(model):
        check_layer(layer, 3, names)
    assert torch.cuda.current_device() == 0
    devices = {layer.base_layer.weight.device for layer in lora_layers(model)}
    assert devices == {GPU, second}
    assert acceleration.left_to_peft == {}
    layer, x = lora_layers(model)[0], torch.zeros(1, 2, 64, device=second).bfloat16()
    with (
        torch.no_grad(),
        pytest.warns(UserWarning, match="inputs on cuda:1 with weights on cuda:0"),
        pytest.raises(RuntimeError),  # of PEFT's own matrix product
    ):
        layer(x, adapter_names=["seven"])
