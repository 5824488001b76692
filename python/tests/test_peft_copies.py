"""The 16-bit copies of f32 weights in heddle.integrations.peft: the CPU stands in for a GPU."""

from __future__ import annotations

import copy
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import frameworks
import pytest

if not frameworks.TORCH_WANTED:
    pytest.skip("skipped: HEDDLE_TEST_TORCH=0", allow_module_level=True)

import torch
from heddle.integrations import _peft_tables, _peft_weights, _streams
from heddle.integrations.peft import accelerate, restore
from peft.utils.hotswap import hotswap_adapter_from_state_dict
from peft_models import (
    assert_close,
    logits,
    lora_layers,
    prompt,
    randomize,
    round_adapters,
    tiny_model,
)
from torch.utils._python_dispatch import TorchDispatchMode

torch.set_num_threads(1)  # while other tests run, threads of torch that spin hold each other up

NAMES = ["seven", "__base__", "wide"]
each_half = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])


@pytest.fixture(autouse=True)
def sixteen_bits_alone(monkeypatch: pytest.MonkeyPatch, rng: Any) -> Iterator[None]:
    """As on a GPU, kernels read no f32; and warnings of what stays with PEFT fail."""
    torch.manual_seed(int(rng.integers(2**31)))
    monkeypatch.setitem(_peft_weights.KERNEL_DTYPES, "cpu", (torch.float16, torch.bfloat16))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="heddle leaves to PEFT")
        yield


def half_model(dtype: torch.dtype, *, exact: bool = True) -> Any:
    """A base model of 16 bits with adapters in f32, as PEFT loads them."""
    model = tiny_model()
    for name, weight in model.named_parameters():
        if "lora_" not in name:
            weight.data = weight.data.to(dtype)
    if exact:
        round_adapters(model, dtype)
    return model


def adapter(model: Any, dtype: torch.dtype) -> _peft_weights.Adapter:
    """One of a layer."""
    return _peft_weights.Adapter.of(lora_layers(model)[0], "seven", dtype)


def inexact(dtype: torch.dtype) -> str:
    """Why weights are not copied."""
    name = {torch.float16: "f16", torch.bfloat16: "bf16"}[dtype]
    return (
        f"f32 weights that {name} does not hold exactly; "
        "accelerate(model, round_weights=True) rounds them"
    )


@each_half
def test_copies_are_exact_or_rounded_or_refused(dtype: torch.dtype) -> None:
    model = tiny_model()
    layer = lora_layers(model)[0]
    a, b = (half["seven"].weight for half in (layer.lora_A, layer.lora_B))
    tiny, large = torch.finfo(dtype).smallest_normal, torch.finfo(dtype).max

    def why(*, round_weights: bool) -> list[str]:
        adapters = {"it": adapter(model, dtype)}
        return list(_peft_weights.why_not_held(adapters, round_weights=round_weights).values())

    with torch.no_grad():
        a.copy_(a.to(dtype))
        b.copy_(b.to(dtype))
        a[0, :6] = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, tiny / 2, -large])
    for round_weights in (False, True):
        assert why(round_weights=round_weights) == []
    for weight in (a, b):
        for value in (1 + 2.0**-12, -tiny * (1 + 2.0**-12), torch.nan, 1e-45):
            before = weight[1, 2].item()
            with torch.no_grad():
                weight[1, 2] = value
            assert why(round_weights=False) == [inexact(dtype)]
            assert why(round_weights=True) == []
            with torch.no_grad():
                weight[1, 2] = before
        assert why(round_weights=False) == []
    with torch.no_grad():
        b[3, 1] = torch.finfo(torch.float32).max
    assert why(round_weights=False) == [inexact(dtype)]
    name = inexact(dtype).split()[3]
    assert why(round_weights=True) == [f"f32 weights too large for {name}"]


@each_half
def test_weights_in_the_kernels_dtype_are_not_copied(dtype: torch.dtype) -> None:
    model = tiny_model().to(dtype)
    same = adapter(model, dtype)
    assert same.versions is None
    assert same.read[0] is same.held[0]
    assert same.read[1] is same.held[1]
    assert _peft_weights.why_not_held({"it": same}, round_weights=False) == {}


def test_the_dtype_to_read() -> None:
    f16, bf16, f32, f64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
    for own, base, want in (
        (f32, bf16, bf16),
        (f32, f16, f16),
        (f32, f32, f32),
        (f32, f64, f32),
        (f32, None, f32),
        (f16, bf16, f16),
        (bf16, f32, bf16),
        (f64, bf16, f64),
    ):
        assert _peft_weights.dtype_to_read(torch.zeros(1, dtype=own), base) == want
    _peft_weights.KERNEL_DTYPES["cpu"] = (f32, f16, bf16)  # as they are
    assert _peft_weights.dtype_to_read(torch.zeros(1), bf16) == f32


@each_half
def test_exact_copies_compute_what_weights_of_16_bits_do(dtype: torch.dtype) -> None:
    model, tokens = half_model(dtype), prompt(3)
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    acceleration = accelerate(model)
    assert acceleration.num_layers == 14
    assert acceleration.left_to_peft == {}
    got = logits(model, tokens, NAMES)
    for name, weight in model.named_parameters():
        assert weight.dtype == (torch.float32 if "lora_" in name else dtype)
        assert torch.equal(weight, before[name])
    for layer in lora_layers(model):
        for part in layer.__dict__["_mixed_batch_forward"].tables.adapters.values():
            assert [2 * copied.nbytes for copied in part.read] == [w.nbytes for w in part.held]
    other = copy.deepcopy(model)
    assert torch.equal(logits(other, tokens, NAMES), got)
    assert accelerate(other).left_to_peft == {}
    for weight in model.parameters():
        weight.data = weight.data.to(dtype)
    assert torch.equal(logits(model, tokens, NAMES), got)


@each_half
def test_other_weights_are_left_to_peft_unless_they_may_be_rounded(dtype: torch.dtype) -> None:
    model, tokens = half_model(dtype, exact=False), prompt(3)
    want = logits(model, tokens, NAMES)
    with pytest.warns(UserWarning, match="does not hold exactly"):
        acceleration = accelerate(model)
    assert acceleration.num_layers == 0
    reasons = [f"adapter {name!r} ({inexact(dtype)})" for name in ("one", "query_value", "seven")]
    assert all(reason in acceleration.left_to_peft for reason in reasons)
    assert torch.equal(logits(model, tokens, NAMES), want)
    assert accelerate(model, round_weights=True) is acceleration
    assert (acceleration.num_layers, acceleration.left_to_peft) == (14, {})
    rounded = logits(model, tokens, NAMES)
    assert not torch.equal(rounded, want)
    assert_close(rounded, want, 0.2 if dtype == torch.bfloat16 else 0.03)
    other = copy.deepcopy(model)
    round_adapters(other, dtype)
    assert torch.equal(logits(other, tokens, NAMES), rounded)  # torch rounds to nearest even
    tables = [layer.__dict__["_mixed_batch_forward"].tables for layer in lora_layers(model)]
    accelerate(model, round_weights=True)
    logits(model, tokens, NAMES)
    for layer, table in zip(lora_layers(model), tables, strict=True):
        assert layer.__dict__["_mixed_batch_forward"].tables is table
    assert accelerate(model).num_layers == 0
    assert torch.equal(logits(model, tokens, NAMES), want)


def test_one_adapter_may_be_left_beside_others() -> None:
    model, tokens = half_model(torch.bfloat16), prompt(2)
    layer = model.base_model.model.model.layers[0].mlp.up_proj
    with torch.no_grad():
        layer.lora_A["seven"].weight[0, 0] = 0.1  # the first of the layer
    with pytest.warns(UserWarning, match="'seven' .f32 weights that bf16 .* .1 layers"):
        acceleration = accelerate(model)
    assert acceleration.num_layers == 14
    x = torch.randn(2, 5, 48).bfloat16()
    with torch.no_grad():
        got = layer(x, adapter_names=["one", "__base__"])
        left = layer(x, adapter_names=["seven", "one"])
        restore(model)
        assert_close(got, layer(x, adapter_names=["one", "__base__"]), 0.02)
        assert torch.equal(left, layer(x, adapter_names=["seven", "one"]))
        assert logits(model, tokens, ["seven", "one"]).isfinite().all()


def test_copies_follow_weights_that_change_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokens, dtype = half_model(torch.bfloat16), prompt(3), torch.bfloat16
    acceleration = accelerate(model)
    before = logits(model, tokens, NAMES)

    def check() -> None:
        nonlocal before
        got = logits(model, tokens, NAMES)
        assert not torch.equal(got, before)
        restore(model)
        accelerate(model)
        assert torch.equal(logits(model, tokens, NAMES), got)
        before = got

    layer = model.base_model.model.model.layers[0].self_attn.v_proj
    with torch.no_grad():
        layer.lora_B["wide"].weight.mul_(2)
        check()
        layer.lora_A["wide"].weight[3].neg_()
        check()
    with torch.inference_mode():
        layer.lora_A["seven"].weight.mul_(0.5)
        check()
    layer.lora_A["seven"].weight.data = torch.ones(8, 48)
    check()
    state = {name: weight / 2 for name, weight in model.state_dict().items() if "lora_A" in name}
    model.load_state_dict(state, strict=False)
    check()
    acceleration = accelerate(model)
    with torch.no_grad():
        layer.lora_B["wide"].weight[0, 0] = 0.1
    with pytest.warns(UserWarning, match="'wide' .f32 weights that bf16"):
        logits(model, tokens, NAMES)
    assert [*acceleration.left_to_peft.values()] == [1]
    compared: list[Any] = []
    monkeypatch.setattr(_peft_tables, "why_not_held", lambda *args, **_: compared.append(args))
    logits(model, tokens, NAMES)
    assert compared == []  # what is left is not looked at in each call
    monkeypatch.undo()
    monkeypatch.setitem(_peft_weights.KERNEL_DTYPES, "cpu", (torch.float16, dtype))
    round_adapters(model, dtype)
    logits(model, tokens, NAMES)
    assert acceleration.left_to_peft == {}


def test_peft_s_hotswap_is_seen() -> None:
    """It writes through `.data`, which tensors do not count."""
    model, tokens = half_model(torch.bfloat16), prompt(2)
    accelerate(model)
    before = logits(model, tokens, ["seven", "one"])
    swapped = {
        name: (2 * weight).clone()
        for name, weight in model.named_parameters()
        if ".seven." in name and "mlp" not in name  # the new adapter lacks layers, which become 0
    }
    versions = [weight._version for weight in model.parameters()]
    hotswap_adapter_from_state_dict(model, swapped, "seven", model.peft_config["seven"])
    assert versions == [weight._version for weight in model.parameters()]
    got = logits(model, tokens, ["seven", "one"])
    assert not torch.equal(got[0], before[0])
    assert torch.equal(got[1], before[1])
    for each in (copy.deepcopy(model), model):
        restore(each)
        assert "state_dict" not in each.base_model.__dict__
    accelerate(model)
    assert torch.equal(logits(model, tokens, ["seven", "one"]), got)


def test_a_base_model_of_another_dtype_has_other_copies() -> None:
    model, tokens = half_model(torch.bfloat16), prompt(3)
    round_adapters(model, torch.float16)  # to what both hold
    acceleration = accelerate(model)
    logits(model, tokens, NAMES)
    base = [weight for name, weight in model.named_parameters() if "lora_" not in name]
    for weight in base:
        weight.data = weight.data.half()
    assert logits(model, tokens, NAMES).dtype == torch.float16
    assert (acceleration.num_layers, acceleration.left_to_peft) == (14, {})
    for weight in base:
        weight.data = weight.data.float()
    with pytest.warns(UserWarning, match="weights of torch.float32 on cpu, where heddle takes f16"):
        got = logits(model, tokens, NAMES)
    assert acceleration.num_layers == 0
    restore(model)
    assert torch.equal(got, logits(model, tokens, NAMES))


def test_copies_are_not_made_while_a_graph_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    model = half_model(torch.float16)
    accelerate(model)
    layer = model.base_model.model.model.layers[0].mlp.up_proj
    x = torch.randn(2, 5, 48).half()
    with torch.no_grad():
        for names in (["seven", "one"], ["one", "one"]):
            layer(x, adapter_names=names)
        layer.lora_A["seven"].weight.mul_(2)
        monkeypatch.setattr(_streams, "is_capturing", lambda: True)
        with pytest.raises(RuntimeError, match="the adapters of a layer .* before the capture"):
            layer(x, adapter_names=["seven", "one"])
        assert layer(x, adapter_names=["one", "one"]).isfinite().all()


def test_weights_whose_changes_are_not_counted_are_left_to_peft() -> None:
    model = half_model(torch.bfloat16)
    layer = model.base_model.model.model.layers[0].mlp.up_proj
    with torch.inference_mode():
        layer.lora_B["one"].weight = torch.nn.Parameter(torch.zeros(80, 1), requires_grad=False)
    with pytest.warns(UserWarning, match="'one' .f32 weights made in inference mode, whose"):
        accelerate(model)
    with torch.no_grad():
        got = layer(torch.ones(1, 48).bfloat16(), adapter_names=["one"])
    assert got.isfinite().all()


class Ops(TorchDispatchMode):
    """Counts what torch does."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """See TorchDispatchMode."""
        self.counts[str(op)] += 1
        return op(*args, **(kwargs or {}))


@torch.no_grad()
def test_a_later_call_makes_and_waits_for_nothing() -> None:
    model = half_model(torch.bfloat16)
    accelerate(model)
    layer = model.base_model.model.model.layers[0].mlp.up_proj
    x = torch.randn(3, 5, 48).bfloat16()
    names = ["seven", "one", "__base__"]
    with Ops() as of_base:
        layer.base_layer(x)
    with Ops() as first:
        layer(x, adapter_names=names)
    with Ops() as second:
        layer(x, adapter_names=names)
    more = second.counts - of_base.counts
    assert {op.split(".")[1] for op in more} <= {"view", "_unsafe_view", "detach"}
    assert first.counts - second.counts


def test_other_models_weights_stay_out_of_it() -> None:
    """Copies belong to a model: another of the same shapes has its own."""
    model, tokens = half_model(torch.bfloat16), prompt(3)
    other = copy.deepcopy(model)
    accelerate(model)
    accelerate(other)
    want = logits(model, tokens, NAMES)
    randomize(other)
    round_adapters(other, torch.bfloat16)
    assert not torch.equal(logits(other, tokens, NAMES), want)
    assert torch.equal(logits(model, tokens, NAMES), want)
