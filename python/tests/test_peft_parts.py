"""What heddle.integrations.peft keeps for the calls of a layer: tables, row ids and plans."""

from __future__ import annotations

import threading
from typing import Any

import frameworks
import pytest

if not frameworks.TORCH_WANTED:
    pytest.skip("skipped: HEDDLE_TEST_TORCH=0", allow_module_level=True)

import heddle
import torch
from heddle.integrations import _peft_batches, _peft_tables, _peft_weights, _streams
from heddle.integrations import peft as integration
from heddle.integrations._peft_tables import LayerTables
from peft_models import assert_close, config, logits, prompt, tiny_model

torch.set_num_threads(1)  # while other tests run, threads of torch that spin hold each other up


@pytest.fixture
def model(rng: Any) -> Any:
    """A tiny random Llama with four adapters."""
    torch.manual_seed(int(rng.integers(2**31)))
    return tiny_model()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rank", [1, 3, 4, 8, 12, 16, 20, 24, 33])
@pytest.mark.parametrize("offset", [0, 1, 8])
def test_vectors_fit_where_an_aligned_table_takes_the_weight(
    dtype: torch.dtype, rank: int, offset: int
) -> None:
    memory = torch.zeros(64 * rank + 16, dtype=dtype)
    assert memory.data_ptr() % 16 == 0
    for layout, shape in (("rank_major", (rank, 64)), ("rank_minor", (64, rank))):
        weight = memory[offset : offset + 64 * rank].view(shape)
        name = {torch.float32: "f32", torch.bfloat16: "bf16"}[dtype]
        table = heddle.AdapterTable(1, [64], rank, dtype=name, layout=layout, aligned=True)
        if _peft_tables.fits_vectors(weight, rank):
            table.set(0, 0, weight)
        else:
            with pytest.raises(ValueError, match="in a table of aligned weights"):
                table.set(0, 0, weight)


def test_a_layer_whose_weights_all_fit_promises_it(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    promised = []

    def counted(*args: Any, **kwargs: Any) -> heddle.AdapterTable:
        promised.append(kwargs["aligned"])
        return heddle.AdapterTable(*args, **kwargs)

    monkeypatch.setattr(_peft_tables, "AdapterTable", counted)
    layer = model.base_model.model.model.layers[0].mlp.up_proj  # ranks 8 and 1
    LayerTables.of(layer)
    model.delete_adapter("one")
    LayerTables.of(layer)
    assert promised == [False, False, True, True]


def test_why_weights_have_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    why = _peft_weights.why_no_kernel
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        assert why(dtype, "cpu") is None
    assert why(torch.float64, "cpu") == (
        "weights of torch.float64 on cpu, where heddle takes f32 and f16 and bf16"
    )
    assert why(torch.float16, "meta") == "weights on meta"
    monkeypatch.setattr(_peft_weights, "has_cuda", lambda: False)
    reason = "weights on cuda, but heddle was built without CUDA"
    assert why(torch.bfloat16, "cuda") == reason
    monkeypatch.setattr(_peft_weights, "has_cuda", lambda: True)
    assert why(torch.bfloat16, "cuda") is None
    assert why(torch.float16, "cuda") is None
    assert why(torch.float32, "cuda") == (
        "weights of torch.float32 on cuda, where heddle takes f16 and bf16"
    )


def test_adapters_of_another_dtype_or_device_stay_with_peft(model: Any) -> None:
    layer = model.base_model.model.model.layers[0].self_attn.v_proj
    layer.lora_A["wide"].weight.data = layer.lora_A["wide"].weight.data.double()
    for part in (layer.lora_A["query_value"], layer.lora_B["query_value"]):
        part.weight.data = part.weight.data.half()
    layer.lora_B["one"].weight.data = layer.lora_B["one"].weight.data.half()
    tables = LayerTables.of(layer)
    assert list(tables.adapters) == ["seven"]
    assert tables.unknown["wide"].startswith("weights of torch.float64 on cpu, where")
    assert tables.unknown["query_value"] == (
        "weights of torch.float16 on cpu beside torch.float32 on cpu"
    )
    assert tables.unknown["one"] == "weights of torch.float32 on cpu and torch.float16 on cpu"
    every = layer.lora_A.keys()
    assert tables.is_current(layer, every)
    layer.lora_B["one"].to("meta")
    assert tables.is_current(layer, ["seven", "wide", "query_value"])
    assert not tables.is_current(layer, every)
    assert LayerTables.of(layer).unknown["one"] == "weights on meta"


def test_a_scaling_that_may_change_unseen_stays_with_peft(model: Any) -> None:
    layer = model.base_model.model.model.layers[0].self_attn.v_proj
    layer.scaling["wide"] = torch.tensor(2.0)  # as PEFT's prepare_model_for_compiled_hotswap
    tables = LayerTables.of(layer)
    assert tables.unknown == {"wide": "scaling of type Tensor"}
    assert tables.is_current(layer, layer.lora_A.keys())


def test_a_layer_without_known_adapters_has_no_tables(model: Any) -> None:
    layer = model.base_model.model.model.layers[0].self_attn.v_proj.double()
    tables = LayerTables.of(layer)
    assert tables.tables is None
    assert len(tables.unknown) == 4
    assert tables.is_current(layer, layer.lora_A.keys())
    layer.float()
    assert not tables.is_current(layer, ["seven"])


def test_tables_are_made_anew_only_where_a_layer_changed(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.add_adapter("bias", config(r=4, target_modules=["q_proj"], lora_bias=True))
    model.eval()
    with pytest.warns(UserWarning, match="'bias'"):
        integration.accelerate(model)
    made = []

    def counted(layer: Any, *terms: Any) -> LayerTables:
        made.append(layer)
        return tables_of(layer, *terms)

    tables_of = LayerTables.of
    monkeypatch.setattr(LayerTables, "of", counted)
    layer = model.base_model.model.model.layers[1].self_attn.q_proj
    x = torch.randn(2, 5, 48)
    with torch.no_grad():
        for names in (["seven", "one"], ["bias", "seven"]):
            layer(x, adapter_names=names)
        logits(model, prompt(2), ["seven", "one"])
        assert made == []
        layer.scaling["one"] = 3.0
        for names in (["seven", "seven"], ["one", "seven"], ["one", "one"]):
            layer(x, adapter_names=names)
        assert made == [layer]
        weight = layer.lora_A["seven"].weight  # the other way round, at the same address
        weight.data = weight.data.view(48, 8).t()
        with pytest.warns(UserWarning, match="'seven' .weights with gaps"):
            got = layer(x, adapter_names=["seven", "seven"])
        assert made == [layer] * 2
        integration.restore(model)
        assert torch.equal(got, layer(x, adapter_names=["seven", "seven"]))


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The CPU stands in for a GPU: layers ask for plans. What is done, as it is done."""
    done: list[tuple[Any, ...]] = []

    def plan(
        memory: torch.Tensor,
        batch: heddle.LoraBatch,
        num_tokens: int,
        num_slots: int,
        max_rank: int,
        slot_ranks: torch.Tensor,
    ) -> None:
        assert memory.dtype == torch.uint8
        assert memory.numel() == heddle.lora_plan_bytes(num_tokens, max_rank)
        assert batch.slot_ids.shape == (num_tokens,)
        assert len(slot_ranks) == num_slots
        assert int(slot_ranks.max()) == max_rank
        done.append(("plan", memory))

    def apply(*args: Any) -> None:
        *others, batch = args
        done.append(("apply", batch.plan))
        heddle.ops.lora_apply(*others, batch._replace(plan=None))

    monkeypatch.setattr(_peft_batches, "is_gpu", lambda device: device.type == "cpu")
    monkeypatch.setattr(_peft_batches, "lora_plan", plan)
    monkeypatch.setattr(_peft_batches, "wait_for_stream", lambda device: done.append(("wait",)))
    monkeypatch.setattr(integration, "lora_apply", apply)
    return done


def test_layers_and_steps_share_plans(model: Any, on_gpu: list[tuple[Any, ...]]) -> None:
    integration.accelerate(model)
    tokens, names = prompt(3), ["seven", "__base__", "wide"]
    logits(model, tokens, names)
    kinds = 4  # of layers: q_proj, v_proj, down_proj and the others hold the same adapters
    plans = [memory for what, *rest in on_gpu if what == "plan" for memory in rest]
    assert len(plans) == 2 * kinds  # of the prompt, and of both steps
    applied = [memory for what, *rest in on_gpu if what == "apply" for memory in rest]
    assert len(applied) == 3 * 14
    assert {id(memory) for memory in applied} == {id(memory) for memory in plans}
    for index, (what, *_) in enumerate(on_gpu):
        if what == "plan":
            assert on_gpu[index + 1] == ("wait",)
    on_gpu.clear()
    logits(model, tokens, names)
    assert {what for what, *_ in on_gpu} == {"apply"}


def test_other_ranks_have_a_plan_of_their_own(model: Any, on_gpu: list[tuple[Any, ...]]) -> None:
    integration.accelerate(model)
    layer = model.base_model.model.model.layers[0].mlp.up_proj
    with torch.no_grad():
        layer(torch.randn(2, 5, 48), adapter_names=["seven", "one"])
        a, b = layer.lora_A["one"].weight, layer.lora_B["one"].weight
        a.data, b.data = torch.randn(2, 48), torch.randn(80, 2)
        layer(torch.randn(2, 5, 48), adapter_names=["seven", "one"])
    assert [what for what, *_ in on_gpu] == ["plan", "wait", "apply"] * 2


def test_batches_are_forgotten_when_they_are_many_or_large(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches, waited = _peft_batches.Batches(), list[Any]()
    monkeypatch.setattr(_peft_batches, "wait_for_all", waited.append)
    layers = model.base_model.model.model.layers[0]
    tables, others = LayerTables.of(layers.mlp.up_proj), LayerTables.of(layers.self_attn.q_proj)
    for num_rows in range(1, _peft_batches.MOST_KEPT + 1):
        rows = batches.rows(("seven", "one"), num_rows, tables)
        assert rows.slot_ids.tolist() == [0] * num_rows + [1] * num_rows
    assert len(batches.kept) == _peft_batches.MOST_KEPT
    assert waited == []
    rows_of_others = batches.rows(("seven", "one"), 5, others)  # of a batch that is known
    assert rows_of_others.slot_ids.tolist() == [0] * 5 + [2] * 5
    assert (len(batches.kept), len(waited)) == (2, 1)
    rows = batches.rows(("one", "__base__"), 2, tables)
    assert rows.slot_ids.tolist() == [1, 1, -1, -1]
    assert batches.rows(("one", "__base__"), 2, tables) is rows
    assert (len(batches.kept), len(waited)) == (3, 1)
    monkeypatch.setattr(_peft_batches, "MOST_BYTES", 16)
    batches.rows(("one", "__base__"), 2, others)  # the same batch: what it has stays
    assert batches.rows(("one", "__base__"), 2, tables) is rows
    assert (len(batches.kept), len(waited)) == (2, 2)
    batches.rows(("seven",), 1, tables)
    assert (len(batches.kept), len(waited)) == (1, 3)


def test_layers_of_ever_new_kinds_are_forgotten(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_peft_batches, "MOST_KEPT", 4)
    batches = _peft_batches.Batches()
    layer = model.base_model.model.model.layers[0].mlp.up_proj
    for rank in range(1, 10):
        layer.lora_A["one"].weight.data = torch.zeros(rank, 48)
        layer.lora_B["one"].weight.data = torch.zeros(80, rank)
        batches.rows(("one",), 1, LayerTables.of(layer))
        assert len(batches.kept) <= 4


def test_nothing_is_made_while_a_graph_is_captured(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    integration.accelerate(model)
    layer = model.base_model.model.model.layers[0].mlp.up_proj
    x = torch.randn(2, 5, 48)

    def call(*names: str) -> torch.Tensor:
        with torch.no_grad():
            result: torch.Tensor = layer(x, adapter_names=list(names))
        return result

    want = call("seven", "one")
    for module in (_streams, integration):
        monkeypatch.setattr(module, "is_capturing", lambda: True)
    assert torch.equal(call("seven", "one"), want)
    with pytest.raises(RuntimeError, match="has not seen this batch before the capture"):
        call("one", "one")
    layer.set_scale("one", 3.0)
    with pytest.raises(RuntimeError, match="has not seen the adapters of a layer .* the capture"):
        call("seven", "one")
    assert torch.equal(call("__base__", "__base__"), layer.base_layer(x))


def test_a_call_may_come_from_several_threads(model: Any) -> None:
    integration.accelerate(model)
    tokens = prompt(3)
    batches = [["seven", "one", "wide"], ["one", "__base__", "seven"], ["query_value"] * 3]
    want = [logits(model, tokens, names) for names in batches]
    layer = model.base_model.model.model.layers[0].self_attn.v_proj
    wrong: list[str] = []

    def call(index: int) -> None:
        for _ in range(10):
            site = layer.__dict__["_mixed_batch_forward"]
            site.tables = None  # as if the layer had changed
            x = inputs[index]
            with torch.no_grad():
                if not torch.equal(layer(x, adapter_names=batches[index]), outputs[index]):
                    wrong.append("other bits")

    with torch.no_grad():
        inputs = [torch.randn(3, 5, 48) for _ in batches]
        outputs = [layer(x, adapter_names=names) for x, names in zip(inputs, batches, strict=True)]
    threads = [threading.Thread(target=call, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    for names, logits_before in zip(batches, want, strict=True):
        assert torch.equal(logits(model, tokens, names), logits_before)


def test_inputs_may_have_any_strides(model: Any) -> None:
    integration.accelerate(model)
    layer = model.base_model.model.model.layers[0].mlp.up_proj
    x = torch.randn(48, 3).t()
    assert x.stride() == (1, 3)
    names = ["seven", "__base__", "one"]
    with torch.no_grad():
        got = layer(x, adapter_names=names)
        assert_close(got, layer(x.contiguous(), adapter_names=names))
        assert layer(x[:0], adapter_names=[]).shape == (0, 80)
    with torch.inference_mode():
        assert torch.equal(layer(x, adapter_names=names), got)
        assert torch.equal(layer(x, adapter_names=names[::-1])[1], layer(x, adapter_names=names)[1])


@torch.no_grad()
def test_what_is_compiled_is_peft_s(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    layer, names = model.base_model.model.model.layers[0].mlp.up_proj, ["seven", "one"]
    x = torch.randn(2, 5, 48)
    want = layer(x, adapter_names=names)
    integration.accelerate(model)
    calls: list[Any] = []
    monkeypatch.setattr(integration, "lora_apply", lambda *args, **kwargs: calls.append(args))
    compiled = torch.compile(lambda x: layer(x, adapter_names=names), backend="aot_eager")
    assert_close(compiled(x), want)
    assert calls == []
    layer(x, adapter_names=names)
    assert len(calls) == 1
