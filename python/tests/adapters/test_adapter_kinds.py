"""Every kind of adapter against PEFT in f32, all in one batch next to rows of the base model, on the device of HEDDLE_TEST_DEVICE."""

from __future__ import annotations

import copy
import dataclasses
import os
import pathlib
import random
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from adapter_kinds import LINEAR, Kind, found_name, make, never
from adapter_refusals import REFUSALS, make_refused
from every_kind import KINDS
from family_models import CASES, ON_CPU, VOCAB, make_model, save, with_block_widths
from frameworks import TORCH_WANTED
from test_families import TOLERANCE, error_of, on_cpu, one_thread, run, seed_of_run

# On a GPU, whose products with Q8_0 are rounded to bf16, that would hide the mistakes.
FEW = ["llama", "qwen2", "gemma2", "phi3"] + ["llama GGUF Q8_0"] * ON_CPU
IS_WHOLE = os.environ.get("HEDDLE_CONFORMANCE") == "1"  # so in make conformance
MODELS = [case.name for case in CASES] + FEW[4:] if IS_WHOLE else FEW
LENGTHS = (6, 31)
STEPS = 6
SOME = (4, 9)  # tokens that end prompts, of those that kinds have rows of their own for

pytestmark = pytest.mark.skipif(not TORCH_WANTED, reason="skipped: HEDDLE_TEST_TORCH=0")
_ = one_thread  # a fixture of every test here


@dataclasses.dataclass
class Adapted:
    """A model with an adapter of a kind: PEFT's, and the rows that heddle computed with it."""

    kind: Kind
    model: Any
    rows: list[dict[str, Any]]
    got: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    found: list[dict[str, Any]] = dataclasses.field(default_factory=list)  # with the adapter saved where PEFT finds the base model


def logits_of(model: Any, tokens: list[int], num_answer: int = 0) -> Any:
    """Those of the prompt's last token and of the answer's."""
    import torch

    with torch.no_grad():
        return model(input_ids=torch.tensor([tokens])).logits[0, len(tokens) - num_answer - 1:]


def make_rows(kind: Kind, seed: int) -> list[dict[str, Any]]:
    numbers = random.Random(f"{kind.name} {seed}")
    last = VOCAB + kind.more_tokens - 1
    rows = [[numbers.randrange(3, last) for _ in range(length - 2)] for length in LENGTHS]
    if kind.invocation:  # nowhere, at the beginning, at the end, twice
        called = [*kind.invocation, *rows[0]]
        rows += [called, rows[1] + kind.invocation, called + called]
        return [{"tokens": row, "adapter": kind.name} for row in rows]
    return [{"tokens": [*row, last, SOME[len(row) % len(SOME)]], "adapter": kind.name} for row in rows]


def make_base(name: str, folder: pathlib.Path, seed: int) -> tuple[Any, pathlib.Path]:
    """A model, and where heddle finds it; of a quantised file the model has what the file says."""
    case = next(case for case in CASES if case.name == name.split()[0])
    if name == case.name:
        model = make_model(case, seed)
        return model, save(model, folder / "model")
    from family_gguf import write_gguf

    model = make_model(with_block_widths(case), seed)
    return model, write_gguf(model, case.gguf, folder / "model.gguf", name.split()[-1])


@pytest.fixture(scope="module", params=MODELS)
def adapted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Adapted]]:
    """By kind: one run of heddle with all of them."""
    seed = seed_of_run()
    folder = tmp_path_factory.mktemp(request.param)
    base, path = make_base(request.param, folder, seed)
    all_kinds: dict[str, Adapted] = {"base": Adapted(Kind("base", {}, {}, merges=never), base, [])}
    options = []
    again: list[Adapted] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number, kind in enumerate(kind for kind in KINDS if kind.needs(base)):
            if kind.finds_base and not path.is_dir():
                continue
            adapter = folder / f"adapter{number}"
            found = path if path.is_dir() and not kind.converts and kind.has_vocabulary else None
            all_kinds[kind.name] = Adapted(kind, make(base, kind, adapter, seed + number, found), make_rows(kind, seed))
            options += ["--adapter", f"{kind.name}={found_name(adapter) if kind.finds_base else adapter}"]
            if found and not kind.finds_base:
                again.append(all_kinds[kind.name])
                options += ["--adapter", f"{kind.name}, found={found_name(adapter)}"]
    all_kinds["base"].rows = [row | {"adapter": None} for row in make_rows(all_kinds["base"].kind, seed)]
    rows = [row for one in all_kinds.values() for row in one.rows]
    rows += [row | {"adapter": f"{one.kind.name}, found"} for one in again for row in one.rows]
    result = iter(run(path, rows, "--steps", str(STEPS), *options)["rows"])
    for one in all_kinds.values():
        one.got = [next(result) for _ in one.rows]
    for one in again:
        one.found = [next(result) for _ in one.rows]
    yield all_kinds


def contains(row: list[int], part: list[int]) -> bool:
    return bool(part) and any(row[i: i + len(part)] == part for i in range(len(row)))


def the(adapted: dict[str, Adapted], kind: str) -> Adapted:
    if kind not in adapted:
        pytest.skip(f"{kind}: not with this model")
    return adapted[kind]


def largest_error(one: Adapted, model: Any) -> float:
    return max(error_of(got["logits"], logits_of(model, row["tokens"])[0].tolist())
               for row, got in zip(one.rows, one.got, strict=True))


by_kind = pytest.mark.parametrize("kind", ["base"] + [kind.name for kind in KINDS])


@by_kind
def test_logits_and_answers_are_pefts(adapted: dict[str, Adapted], kind: str) -> None:
    one = the(adapted, kind)
    for row, got in zip(one.rows, one.got, strict=True):
        if contains(got["answer"], one.kind.invocation):  # PEFT would take it for one of the prompt's
            got["answer"] = []
        logits = logits_of(one.model, row["tokens"] + got["answer"], len(got["answer"]))
        assert error_of(got["logits"], logits[0].tolist()) <= TOLERANCE
        assert len(got["answer"]) in (0, STEPS)
        for of_token, token in zip(logits, got["answer"]):  # of two that are as good either will do
            assert of_token[token] >= of_token.max() - 2 * TOLERANCE * logits.abs().max()


@by_kind
def test_it_is_the_same_adapter_where_peft_finds_the_base_model(adapted: dict[str, Adapted], kind: str) -> None:
    """The first test that reads all of `got`, which the comparison with PEFT may shorten."""
    one = the(adapted, kind)
    if not one.found:
        pytest.skip(f"{kind}: PEFT saves it alike wherever the base model is")
    for got, found in zip(one.got, one.found, strict=True):
        assert found["logits"] == got["logits"]
        assert found["answer"][: len(got["answer"])] == got["answer"]


@by_kind
def test_a_row_keeps_its_bits(adapted: dict[str, Adapted], kind: str) -> None:
    """Alone, in other chunks and pages, as in the batch of all kinds."""
    assert all(got["same_bits_alone"] for got in the(adapted, kind).got)


@by_kind
def test_a_mistake_in_the_formula_is_seen(adapted: dict[str, Adapted], kind: str) -> None:
    one = the(adapted, kind)
    for name, mistake in one.kind.mistakes.items():
        with mistake(one.model):
            assert largest_error(one, one.model) > TOLERANCE, name
    assert largest_error(one, one.model) <= TOLERANCE  # all mistakes are out again


@by_kind
def test_merged_is_the_same(adapted: dict[str, Adapted], kind: str) -> None:
    """The last test of a model: PEFT merges in place."""
    one = the(adapted, kind)
    if one.kind.merges(one.model):
        assert largest_error(one, one.model.merge_and_unload()) <= TOLERANCE


@on_cpu
def test_a_pickle_is_refused_with_the_command_that_converts_it(tmp_path: pathlib.Path) -> None:
    import shlex
    import subprocess
    import sys

    import torch
    from safetensors.torch import load_file

    base, path = make_base("llama", tmp_path, seed_of_run())
    folder = tmp_path / "adapter"
    make(base, KINDS[0], folder, 1)
    safe = folder / "adapter_model.safetensors"
    tokens = [{"tokens": [5, 4, 7], "adapter": "a"}]
    want = run(path, tokens, "--adapter", f"a={folder}")
    torch.save(load_file(safe), folder / "adapter_model.bin")
    safe.unlink()
    with pytest.raises(RuntimeError, match="is a pickle") as refused:
        run(path, tokens, "--adapter", f"a={folder}")
    python, *arguments = shlex.split(str(refused.value).split("this converts it: ")[1])
    assert python == "python"
    subprocess.run([sys.executable, *arguments], check=True)
    assert run(path, tokens, "--adapter", f"a={folder}") == want


@on_cpu
def test_peft_saves_more_where_it_finds_the_base_model(tmp_path: pathlib.Path) -> None:
    """So the fixtures above are what users have."""
    from safetensors import safe_open

    base, path = make_base("llama", tmp_path, seed_of_run())
    kind = next(kind for kind in KINDS if kind.name == "more tokens")
    make(base, kind, tmp_path / "adapter", 1, path)
    with safe_open(found_name(tmp_path / "adapter") / "adapter_model.safetensors", "pt") as file:
        names = {name.rsplit(".", 2)[1] for name in file.keys() if "layers" not in name}  # noqa: SIM118 it is no dict
    assert names == {"embed_tokens", "lm_head", "modules_to_save", "original_module"}


@on_cpu
@pytest.mark.parametrize("name", ["phi3", "llama"])
@pytest.mark.parametrize("dora", [False, True])
def test_parts_fit_fused_layers_and_fused_ones_parts(name: str, dora: bool, tmp_path: pathlib.Path) -> None:
    """An adapter of q_proj, v_proj, gate_proj for qkv_proj and gate_up_proj, and the other way round: W + B A, in rows of the layer."""
    import json

    import torch
    from safetensors.torch import save_file

    seed = seed_of_run()
    base, path = make_base(name, tmp_path, seed)
    torch.manual_seed(seed)
    config = base.config
    heads = config.hidden_size // config.num_attention_heads
    q, kv, mlp = config.hidden_size, config.num_key_value_heads * heads, config.intermediate_size
    rows = {"self_attn.q_proj": (0, q), "self_attn.k_proj": (q, kv), "self_attn.v_proj": (q + kv, kv),
            "self_attn.qkv_proj": (0, q + 2 * kv), "mlp.gate_proj": (0, mlp), "mlp.up_proj": (mlp, mlp), "mlp.gate_up_proj": (0, 2 * mlp)}
    is_fused = name == "phi3"
    targets = ["self_attn.q_proj", "self_attn.v_proj", "mlp.gate_proj"] if is_fused else ["self_attn.qkv_proj", "mlp.gate_up_proj"]
    rank, alpha = 3, 5.0
    tensors, merged = {}, copy.deepcopy(base)
    for i, layer in enumerate(merged.model.layers):
        for target in targets:
            first, count = rows[target]
            a, b = torch.randn(rank, config.hidden_size) * 0.2, torch.randn(count, rank) * 0.2
            magnitude = 1 + torch.rand(count)
            prefix = f"base_model.model.model.layers.{i}.{target}"
            tensors |= {f"{prefix}.lora_A.weight": a, f"{prefix}.lora_B.weight": b}
            if dora:
                tensors[f"{prefix}.lora_magnitude_vector"] = magnitude
            delta = alpha / rank * b @ a
            part, *_ = target.split(".")
            layers = ["qkv_proj"] if is_fused and part == "self_attn" else ["gate_up_proj"] if is_fused else [
                "q_proj", "k_proj", "v_proj"] if part == "self_attn" else ["gate_proj", "up_proj"]
            with torch.no_grad():
                weights = [getattr(getattr(layer, part), one).weight for one in layers]
                whole = torch.cat(weights)
                changed = whole[first: first + count] + delta
                if dora:
                    changed = changed * (magnitude / changed.norm(dim=1))[:, None]
                whole[first: first + count] = changed
                for weight, values in zip(weights, whole.split([len(weight) for weight in weights])):
                    weight.copy_(values)
    folder = tmp_path / "adapter"
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps({
        "peft_type": "LORA", "r": rank, "lora_alpha": alpha, "use_dora": dora, "target_modules": [t.split(".")[1] for t in targets]}))
    tokens = [5, 9, 4, 11, 3, 12, 40]
    got = run(path, [{"tokens": tokens, "adapter": "a"}], "--adapter", f"a={folder}")["rows"][0]
    assert error_of(got["logits"], logits_of(merged, tokens)[0].tolist()) <= TOLERANCE
    assert error_of(got["logits"], logits_of(base, tokens)[0].tolist()) > TOLERANCE


@on_cpu
def test_halves_of_two_types_are_computed_as_peft_does(tmp_path: pathlib.Path) -> None:
    import peft
    import torch
    from safetensors.torch import load_file, save_file

    base, path = make_base("llama", tmp_path, seed_of_run())
    folder = tmp_path / "adapter"
    make(base, Kind("LoRA", {"target_modules": LINEAR}, {}), folder, 1)
    file = folder / "adapter_model.safetensors"
    types = {"lora_A": torch.bfloat16, "lora_B": torch.float16}
    save_file({key: values.to(types[key.split(".")[-2]]) for key, values in load_file(file).items()}, file)
    model = peft.PeftModel.from_pretrained(base, folder).eval()
    tokens = [5, 9, 4, 11, 3]
    got = run(path, [{"tokens": tokens, "adapter": "a"}], "--adapter", f"a={folder}")["rows"][0]
    assert error_of(got["logits"], logits_of(model, tokens)[0].tolist()) <= TOLERANCE


@on_cpu
def test_a_folder_of_several(tmp_path: pathlib.Path) -> None:
    """As a PeftModel of several adapters saves them."""
    import peft

    base, path = make_base("llama", tmp_path, seed_of_run())
    model = peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules=["q_proj"]), adapter_name="one")
    model.add_adapter("two", peft.LoraConfig(r=4, target_modules=["v_proj"]))
    model.save_pretrained(tmp_path / "several")
    with pytest.raises(RuntimeError, match="holds several adapters, name one of its folders: one, two"):
        run(path, [], "--adapter", f"a={tmp_path / 'several'}")
    rows = [{"tokens": [5, 4, 7], "adapter": name} for name in ("one", "two")]
    options = []
    for name in ("one", "two"):
        options += ["--adapter", f"{name}={tmp_path / 'several' / name}"]
    assert len(run(path, rows, *options)["rows"]) == 2


@on_cpu
def test_the_page_has_every_kind() -> None:
    import kind_table

    page = kind_table.PAGE.read_text()
    assert page == kind_table.page_with(page, kind_table.table()), "python/tests/adapters/kind_table.py --write brings it up to date"


@on_cpu
@pytest.mark.parametrize("name", FEW[:4])
def test_what_is_refused_is_named(name: str, tmp_path: pathlib.Path) -> None:
    base, path = make_base(name, tmp_path, seed_of_run())
    for number, refusal in enumerate(REFUSALS):
        folder = tmp_path / str(number)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            make_refused(base, refusal, folder)
        with pytest.raises(RuntimeError) as refused:
            run(path, [{"tokens": [5, 4, 7], "adapter": "a"}], "--adapter", f"a={folder}")
        assert refusal.says in str(refused.value), refusal.name
        assert str(folder) in str(refused.value), refusal.name


@on_cpu
def test_lora_ga_is_not_what_peft_loads_unless_converted(tmp_path: pathlib.Path) -> None:
    """What was trained lies on W - B0 A0, which PEFT has no gradients to make again: so heddle refuses it."""
    import peft

    base, _ = make_base("llama", tmp_path, seed_of_run())
    kind = next(kind for kind in KINDS if kind.name == "LoRA-GA")
    trained = make(base, kind, tmp_path / "converted", 1)
    trained.peft_config["default"].init_lora_weights = "lora_ga"
    trained.save_pretrained(tmp_path / "as-trained")
    tokens = [5, 9, 4, 11, 3]
    want = logits_of(trained, tokens)[0].tolist()
    errors = {}
    for folder in ("converted", "as-trained"):
        loaded = peft.PeftModel.from_pretrained(copy.deepcopy(base), tmp_path / folder).eval()
        errors[folder] = error_of(logits_of(loaded, tokens)[0].tolist(), want)
    assert errors["converted"] <= TOLERANCE
    assert errors["as-trained"] > TOLERANCE
