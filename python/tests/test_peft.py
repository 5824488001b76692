"""heddle.integrations.peft against PEFT's own mixed batches."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Iterator
from typing import Any

import frameworks
import pytest

if not frameworks.TORCH_WANTED:
    pytest.skip("skipped: HEDDLE_TEST_TORCH=0", allow_module_level=True)

import itertools

import torch
from heddle.integrations.peft import Acceleration, accelerate, restore
from peft_models import (
    ALL,
    BATCHES,
    assert_close,
    config,
    logits,
    lora_layers,
    parts_of,
    prompt,
    randomize,
    tiny_model,
)

torch.set_num_threads(1)  # while other tests run, threads of torch that spin hold each other up


@pytest.fixture
def model(rng: Any) -> Any:
    """A tiny random Llama with four adapters."""
    torch.manual_seed(int(rng.integers(2**31)))
    return tiny_model()


@pytest.fixture(autouse=True)
def fail_on_warnings() -> Iterator[None]:
    """A call that stays with PEFT says so, and then no test of ours would see the difference."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="heddle leaves to PEFT")
        yield


@pytest.mark.parametrize("names", BATCHES, ids=" ".join)
def test_mixed_batches_have_peft_logits(model: Any, names: list[str]) -> None:
    tokens = prompt(len(names))
    want = logits(model, tokens, names)
    accelerate(model)
    got = logits(model, tokens, names)
    assert_close(got, want)
    if any(name != "__base__" for name in names):
        assert not torch.equal(got, logits(model, tokens, ["__base__"] * len(names)))
    assert restore(model) is True
    assert torch.equal(logits(model, tokens, names), want)


def test_a_row_has_the_same_bits_in_any_batch_of_adapters(model: Any) -> None:
    """With the same number of rows: what PyTorch does for the base layers depends on that."""
    tokens = prompt(4)
    accelerate(model)
    first = logits(model, tokens, ["seven", "wide", "one", "__base__"])
    second = logits(model, tokens, ["seven", "seven", "seven", "seven"])
    assert torch.equal(first[0], second[0])
    assert not torch.equal(first[1], second[1])


def test_a_second_call_changes_nothing(model: Any) -> None:
    names, tokens = ["seven", "wide", "__base__"], prompt(3)
    acceleration = accelerate(model)
    assert isinstance(acceleration, Acceleration)
    before = logits(model, tokens, names)
    parts = parts_of(model)
    tables = [layer.__dict__["_mixed_batch_forward"].tables for layer in lora_layers(model)]
    for again in (model, model.base_model):
        assert accelerate(again) is acceleration
    assert parts_of(model) == parts
    for layer, table in zip(lora_layers(model), tables, strict=True):
        assert layer.__dict__["_mixed_batch_forward"].tables is table
    assert torch.equal(logits(model, tokens, names), before)


def test_restoring_leaves_nothing_behind(model: Any) -> None:
    before = parts_of(model)
    assert restore(model) is False
    for _ in range(2):
        accelerate(model)
        accelerate(model)
        assert parts_of(model) != before
        assert restore(model) is True
        assert parts_of(model) == before
        assert restore(model) is False
        assert parts_of(model) == before


def test_the_account_tells_what_heddle_does(model: Any) -> None:
    acceleration = accelerate(model)
    assert acceleration.num_layers == 2 * len(ALL)
    assert acceleration.left_to_peft == {}
    assert str(acceleration) == "heddle computes the mixed batches of 14 layers"
    model.add_adapter(
        "late", config(r=4, target_modules=["q_proj"], alora_invocation_tokens=[1, 2])
    )
    model.add_adapter("words", config(r=4, target_modules=["embed_tokens", "lm_head"]))
    with pytest.warns(UserWarning, match="'late' .ALora.* .2 layers.; layers of type lora.Embed"):
        accelerate(model)  # tells what is new
    assert acceleration.num_layers == 2 * len(ALL) + 1
    model.eval()
    with torch.autocast("cpu"), pytest.warns(UserWarning, match="calls under autocast"):
        logits(model, prompt(2), ["query_value", "__base__"])
    left = acceleration.left_to_peft
    assert list(left) == sorted(left)
    assert [n for reason, n in left.items() if "'late' (ALora" in reason] == [2]
    assert left["layers of type lora.Embedding"] == 1
    assert left["calls under autocast"] == 2 * 2
    assert len(left) == 3
    assert all(f"{reason} ({n} layers)" in str(acceleration) for reason, n in left.items())
    model.delete_adapter("late")
    assert "ALora" not in str(acceleration)
    restore(model)
    assert acceleration.num_layers == 0
    assert acceleration.left_to_peft["layers that are not accelerated"] == 2 * len(ALL) + 1
    with pytest.warns(UserWarning, match="layers of type lora.Embedding"):
        acceleration = accelerate(model)
    assert acceleration.left_to_peft == {"layers of type lora.Embedding": 1}


def test_heddle_is_called_once_for_each_layer(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from heddle.integrations import peft as integration

    calls = []

    def counted(*args: Any, **kwargs: Any) -> None:
        calls.append(args[-1].slot_ids)
        lora_apply(*args, **kwargs)

    lora_apply = integration.lora_apply
    monkeypatch.setattr(integration, "lora_apply", counted)
    accelerate(model)
    with torch.no_grad():
        model(input_ids=prompt(3), adapter_names=["seven", "one", "wide"])
        assert len(calls) == 2 * len(ALL)
        # Layers with the same adapters share the row ids: those of q, v, down and the others.
        assert len({ids.data_ptr() for ids in calls}) == 4
        calls.clear()
        model(input_ids=prompt(2), adapter_names=["query_value", "__base__"])
        assert len(calls) == 2 * 2
        calls.clear()
        model(input_ids=prompt(2), adapter_names=["__base__", "__base__"])
        assert not calls


def test_weights_that_change_are_seen(model: Any) -> None:
    names, tokens = ["seven", "wide", "__base__"], prompt(3)
    accelerate(model)

    def check() -> torch.Tensor:
        got = logits(model, tokens, names)
        restore(model)
        assert_close(got, logits(model, tokens, names))
        accelerate(model)
        return got

    seen = [check()]
    layer = model.base_model.model.model.layers[0].self_attn.v_proj
    with torch.no_grad():
        layer.lora_B["wide"].weight.mul_(2)  # in place
        seen.append(check())
        layer.lora_A["wide"].weight.data = torch.randn(33, 48)  # other memory
        seen.append(check())
        another = torch.nn.Parameter(torch.randn(8, 48), requires_grad=False)
        layer.lora_A["seven"].weight = another
        seen.append(check())
        a, b = layer.lora_A["wide"].weight, layer.lora_B["wide"].weight
        a.data, b.data = a.data[:5], b.data[:, :5].contiguous()  # A at the same address
        seen.append(check())
    layer.set_scale("wide", 3.0)
    seen.append(check())
    for before, after in itertools.pairwise(seen):
        assert not torch.equal(before, after)


def test_weights_changed_between_steps_are_seen_without_a_new_table(model: Any) -> None:
    tokens = prompt(2)
    accelerate(model)
    before = logits(model, tokens, ["seven", "__base__"])
    randomize(model)
    after = logits(model, tokens, ["seven", "__base__"])
    restore(model)
    assert_close(after, logits(model, tokens, ["seven", "__base__"]))
    assert not torch.equal(before[0], after[0])
    assert torch.equal(before[1], after[1])


def test_adapters_come_and_go(model: Any) -> None:
    tokens = prompt(3)
    accelerate(model)
    logits(model, tokens, ["seven", "wide", "one"])
    model.add_adapter("late", config(r=40, lora_alpha=40, target_modules=["q_proj", "lm_head"]))
    randomize(model)
    model.eval()
    with torch.no_grad():
        names = ["late", "seven", "__base__"]
        got = logits(model, tokens, names)
        assert "_mixed_batch_forward" in model.base_model.model.lm_head.__dict__
        restore(model)
        assert_close(got, logits(model, tokens, names))
        accelerate(model)
        model.delete_adapter("wide")
        got = logits(model, tokens, ["one", "late", "seven"])
        with pytest.raises(ValueError, match="non-existing adapter"):
            logits(model, tokens, ["wide", "late", "seven"])
        restore(model)
        assert_close(got, logits(model, tokens, ["one", "late", "seven"]))


def test_a_variant_is_left_to_peft_and_told_once(model: Any) -> None:
    model.add_adapter("dora", config(r=4, target_modules=["q_proj", "v_proj"], use_dora=True))
    model.add_adapter(
        "alora", config(r=4, target_modules=["q_proj"], alora_invocation_tokens=[1, 2])
    )
    model.add_adapter("bias", config(r=4, target_modules=["v_proj"], lora_bias=True))
    model.add_adapter("embed", config(r=4, target_modules=["embed_tokens"]))
    randomize(model)
    model.eval()
    names, tokens = ["bias", "alora", "embed", "seven"], prompt(4)
    tokens[:, -2:] = torch.tensor([1, 2])
    with torch.no_grad():
        want = model(input_ids=tokens, adapter_names=names).logits
        with pytest.warns(UserWarning, match="heddle leaves to PEFT") as told:
            accelerate(model)
        assert len(told) == 1
        message = str(told[0].message)
        for part in ("'dora' (Dora", "'alora' (ALora", "'bias' (lora_bias)", "lora.Embedding"):
            assert part in message
        assert torch.allclose(
            model(input_ids=tokens, adapter_names=names).logits, want, rtol=1e-5, atol=1e-5
        )
        with pytest.raises(ValueError, match="DoRA"):  # as without heddle
            model(input_ids=tokens, adapter_names=["dora", "seven", "seven", "seven"])


def test_calls_that_need_gradients_are_left_to_peft_and_told_once(model: Any) -> None:
    for name, weight in model.named_parameters():
        weight.requires_grad_("lora_" in name)
    tokens, names = prompt(2), ["seven", "one"]
    want = model(input_ids=tokens, adapter_names=names).logits
    accelerate(model)
    with pytest.warns(UserWarning, match="calls that need gradients") as told:
        got = model(input_ids=tokens, adapter_names=names).logits
    assert len([w for w in told if "heddle" in str(w.message)]) == 1
    model(input_ids=tokens, adapter_names=names)  # says nothing more
    assert torch.equal(got, want)
    got.sum().backward()
    assert model.base_model.model.model.layers[0].mlp.up_proj.lora_A["one"].weight.grad is not None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_base_model_of_16_bits(model: Any, dtype: torch.dtype) -> None:
    """PEFT, with adapters in f32, rounds the delta before it adds it, heddle the sum alone."""
    for name, weight in model.named_parameters():
        if "lora_" not in name:
            weight.data = weight.data.to(dtype)
    tokens, names = prompt(3), ["seven", "__base__", "wide"]
    want = logits(model, tokens, names).float()
    accelerate(model)
    assert_close(
        logits(model, tokens, names).float(), want, 0.2 if dtype == torch.bfloat16 else 0.03
    )


def test_generate_and_beams(model: Any) -> None:
    tokens, names = prompt(3), ["one", "__base__", "seven"]
    options: dict[str, Any] = {
        "max_new_tokens": 6,
        "do_sample": False,
        "pad_token_id": 0,
        "adapter_names": names,
    }
    for beams in (1, 3):
        want = model.generate(input_ids=tokens, num_beams=beams, **options)
        accelerate(model)
        got = model.generate(input_ids=tokens, num_beams=beams, **options)
        restore(model)
        assert torch.equal(got, want)


def test_a_copy_works_by_itself(model: Any) -> None:
    tokens, names = prompt(2), ["seven", "wide"]
    accelerate(model)
    want = logits(model, tokens, names)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        with torch.no_grad():
            for weight in model.parameters():
                weight.neg_()
        assert torch.equal(logits(other, tokens, names), want)
        with torch.no_grad():
            for weight in model.parameters():
                weight.neg_()
        assert restore(other) is True
        assert restore(other) is False


@pytest.mark.parametrize("function", [accelerate, restore])
def test_another_model_is_refused(function: Any) -> None:
    with pytest.raises(
        TypeError, match="model is a Linear, expected a PeftModel with LoRA adapters"
    ):
        function(torch.nn.Linear(2, 2))


def sixteen_bit_weights(model: Any) -> None:
    for name, weight in model.named_parameters():
        if "lora_" in name:
            weight.data = weight.data.to(torch.bfloat16)


def dropout_in_training(model: Any) -> None:
    for name, module in model.named_modules():
        if "lora_dropout" in name:
            module.train()


def a_hook(model: Any) -> None:
    part = model.base_model.model.model.layers[1].mlp.up_proj.lora_A["one"]
    part.register_forward_hook(lambda module, inputs, output: output)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (sixteen_bit_weights, "inputs of torch.float32 with weights of torch.bfloat16"),
        (dropout_in_training, "dropout in training mode"),
        (a_hook, "adapter 'one' (forward hooks on its parts) (1 layers)"),
    ],
)
def test_what_heddle_does_not_do_is_peft_s_answer_and_told_once(
    model: Any, change: Any, reason: str
) -> None:
    change(model)
    tokens, names = prompt(2), ["one", "seven"]
    torch.manual_seed(1)
    want = logits(model, tokens, names)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        accelerate(model)
        torch.manual_seed(1)
        got = logits(model, tokens, names)
    told = [str(w.message) for w in caught if "heddle" in str(w.message)]
    assert told == [f"heddle leaves to PEFT: {reason}"]
    if change is a_hook:  # of one layer; the others are heddle's
        assert_close(got, want)
    else:
        assert torch.equal(got, want)


def test_adapters_of_16_bits_like_their_base_model(model: Any) -> None:
    model.to(torch.bfloat16)
    tokens, names = prompt(3), ["seven", "__base__", "wide"]
    want = logits(model, tokens, names).float()
    accelerate(model)
    assert_close(logits(model, tokens, names).float(), want, 0.2)
