"""Every family against transformers in f32: folders, GGUF, adapters, greedy answers, batches, and a mistake in each trait.

On the CPU, or with HEDDLE_TEST_DEVICE=cuda on a GPU.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import importlib.util
import json
import math
import os
import pathlib
import random
import subprocess
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from family_models import (
    CASES, DEVICE, ON_CPU, PLAIN, VOCAB, Case, make_adapter, make_model, round_to, save, with_block_widths, with_k_block_widths,
)
from frameworks import TORCH_WANTED

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = pathlib.Path(os.environ.get("HEDDLE_BUILD_DIR", ROOT / "build")) / "tests" / "heddle_model_logits"
# On the CPU of the largest logit. On a GPU the norm of the difference, of the norm of the logits: above what transformers is off by when it
# computes all in f16, 8.0e-3 at most over 189 random models (6.7e-2 in bf16), where heddle keeps more in f32; below what the mistakes make
# of the logits, 2.5e-2 and more. So f16 is what tells a mistake there.
TOLERANCE = 1e-4 if ON_CPU else 1.5e-2
BF16_TOLERANCE = 8 * TOLERANCE
# Mistakes whose effect may be smaller, in what no kernel of a GPU is written for.
BELOW_F16 = {"rms_epsilon", "rotation: theta", "gate_activation: gelu"}
STEPS = 64
# Tokens of prompts: one, fewer than any window, more, and more than any original context.
LENGTHS = (1, 5, 30, 55)
HAS_GGUF = ON_CPU or importlib.util.find_spec("gguf") is not None  # a machine with a GPU may be without
GGUF_CASES = [case for case in CASES if case.gguf and HAS_GGUF]
GGUF_TYPES = ("F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1")
K_TYPES = ("Q4_K", "Q5_K", "Q6_K")
LLAMA_CPP_TYPES = {"Q4_K_M": {"Q4_K", "Q6_K"}, "Q6_K": {"Q6_K"}}  # mixtures, and the types of their matrices
KV_BOUNDS = {"f16": 1e-2, "bf16": 8e-2}  # of the largest logit, against keys and values in f32
FOLDER_TYPES = {"float16": "F16", "bfloat16": "BF16"}
# Set by `make conformance`. Else the K types, whose models are larger, are compared in one case.
IS_CONFORMANCE = os.environ.get("HEDDLE_CONFORMANCE", "0") != "0"
K_CASES = GGUF_CASES if IS_CONFORMANCE else GGUF_CASES[:1]

pytestmark = pytest.mark.skipif(not TORCH_WANTED, reason="skipped: HEDDLE_TEST_TORCH=0")
on_cpu = pytest.mark.skipif(not ON_CPU, reason="skipped: nothing of it is computed on a GPU")


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Any:
    """For models this small torch's threads wait for one another, forty times as long where others work too."""
    if not TORCH_WANTED:
        yield
        return
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@dataclasses.dataclass
class Comparison:
    """What a test has found of a model in a form, such as "GGUF Q8_0"."""

    form: str
    error: float = 0.0  # the largest
    is_equal: bool = False


FOUND: list[Comparison] = []  # of the test that runs


@contextlib.contextmanager
def comparison(form: str) -> Iterator[Comparison]:
    """Holds what is compared, which is equal where nothing is raised."""
    FOUND.append(Comparison(form))
    yield FOUND[-1]
    FOUND[-1].is_equal = True


@pytest.fixture(autouse=True)
def tell_comparisons(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> Iterator[None]:
    """Adds to what --junitxml writes of a test; tests/conformance/families.py reads it."""
    FOUND.clear()
    yield
    if FOUND:
        record_property("model", request.node.callspec.params["case"].model)
    for found in FOUND:
        record_property(found.form, f"{'equal' if found.is_equal else 'differs'} {found.error:.3g}")


def seed_of_run() -> int:
    seed = random.SystemRandom().randrange(1 << 30)
    print(f"seed {seed}")
    return seed


def run(model: pathlib.Path, rows: list[dict[str, Any]], *options: str) -> Any:
    result = subprocess.run([PROGRAM, model, "--device", DEVICE, *options], input=json.dumps(rows), capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise RuntimeError(result.stderr.strip())
    return json.loads(result.stdout)


def make_rows(seed: int, adapters: tuple[str | None, ...] = (None,)) -> list[dict[str, Any]]:
    numbers = random.Random(seed)
    return [
        {"tokens": [numbers.randrange(3, VOCAB) for _ in range(length)], "adapter": adapter}
        for length in LENGTHS
        for adapter in adapters
    ]


def error_of(ours: list[float | None], theirs: list[float]) -> float:
    """What TOLERANCE bounds; NaN, which JSON has as null, is infinitely wrong."""
    if None in ours:
        return float("inf")
    if not ON_CPU:
        return math.dist(ours, theirs) / math.hypot(*theirs)
    return max(abs(a - b) for a, b in zip(ours, theirs, strict=True)) / max(map(abs, theirs))


def forget_lengths(model: Any) -> None:
    """ "dynamic" rotation remembers the longest sequence of earlier calls."""
    for module in model.modules():
        if hasattr(module, "rotary_emb"):
            module.rotary_emb = type(module.rotary_emb)(model.config)


def tolerance_of(kind: str) -> float:
    """With matrices of this type."""
    return TOLERANCE if ON_CPU or kind == "F16" else BF16_TOLERANCE


def compare_row(model: Any, tokens: list[int], got: dict[str, Any], tolerance: float) -> tuple[float, bool]:
    """The error of the logits after the last token, and whether the greedy answer is transformers'.

    Each token of the answer is the best after those before it; of two that are apart by less than both may be off, either will do. Where
    all positions turn alike, one pass over prompt and answer shows that. Else it takes one pass a token.
    """
    import torch

    forget_lengths(model)
    answer = got["answer"]
    with torch.no_grad():
        if model.config.rope_parameters.get("rope_type") in ("dynamic", "longrope"):
            ids = torch.tensor([tokens])
            told = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=len(answer), do_sample=False,
                                  prefix_allowed_tokens_fn=lambda _, row: [answer[len(row) - len(tokens)]], output_logits=True,
                                  return_dict_in_generate=True)
            logits = torch.cat(told.logits)
        else:
            logits = model(input_ids=torch.tensor([tokens + answer])).logits[0, len(tokens) - 1: -1]
        of_answer = logits[torch.arange(len(answer)), torch.tensor(answer)]
        is_best = bool((of_answer >= logits.max(dim=1).values - 2 * tolerance * logits.abs().max()).all())
    return error_of(got["logits"], logits[0].tolist()), is_best


def check_rows(result: Any, rows: list[dict[str, Any]], model: Any, found: Comparison, tolerance: float) -> None:
    assert len(result["rows"]) == len(rows)
    for row, got in zip(rows, result["rows"], strict=True):
        print(f"{len(row['tokens'])} tokens, adapter {row['adapter']}")
        assert len(got["answer"]) == STEPS
        without = hasattr(model, "disable_adapter") and row["adapter"] is None
        with model.disable_adapter() if without else contextlib.nullcontext():
            error, is_best = compare_row(model, row["tokens"], got, tolerance)
        found.error = max(found.error, error)
        assert error <= tolerance
        assert is_best
        assert got["same_bits_alone"]


def check_mutations(result: Any) -> None:
    """A mistake in any trait is refused or changes logits by more than the tolerance."""
    assert result["traits"]
    unseen = []
    for trait in result["traits"]:
        wrong = result["mutations"][trait]
        if "error" in wrong or (not ON_CPU and trait in BELOW_F16):  # the tensors may not fit the mistake
            continue
        right = [row["logits"] for row in result["rows"]]
        if max(error_of(a, b) for a, b in zip(wrong["logits"], right, strict=True)) <= TOLERANCE:
            unseen.append(trait)
    assert not unseen, f"mistakes that the comparison does not see: {unseen}"


def check(form: str, path: pathlib.Path, model: Any, rows: list[dict[str, Any]], *options: str, kind: str = PLAIN) -> Any:
    with comparison(form) as found:
        result = run(path, rows, "--steps", str(STEPS), *options)
        assert result["unread"] == []
        check_rows(result, rows, model, found, tolerance_of(kind))
        if "--mutate" in options:
            check_mutations(result)
    return result


def by_name(cases: list[Case]) -> Any:
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)


@by_name(CASES)
def test_folder(case: Case, tmp_path: pathlib.Path) -> None:
    seed = seed_of_run()
    model = make_model(case, seed)
    folder = save(model, tmp_path / "model", max_shard_size="20KB" if seed % 2 else "1GB")
    rows = make_rows(seed)
    plain = check(f"folder {PLAIN}", folder, model, rows, "--mutate")
    for kind, bound in KV_BOUNDS.items() if ON_CPU else ():
        with comparison(f"folder, KV cache {kind}") as found:
            result = run(folder, rows, "--kv-type", kind)
            errors = [error_of(a["logits"], b["logits"]) for a, b in zip(result["rows"], plain["rows"], strict=True)]
            print(f"KV cache in {kind}: {max(errors):.1e}")
            found.error = max(errors)
            assert 0 < found.error <= bound
            assert all(row["same_bits_alone"] for row in result["rows"])


def of_transformers_4(config: dict[str, Any]) -> dict[str, Any]:
    """The same settings as transformers wrote them before version 5, and as most models on the hub have them."""
    config = copy.deepcopy(config)
    rope = config.pop("rope_parameters")
    config.pop("layer_types", None)
    if "full_attention" in rope:
        config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
    for key in ("rope_theta", "partial_rotary_factor"):
        if key in rope:
            config[key] = rope.pop(key)
    kind = rope.pop("rope_type")
    if "original_max_position_embeddings" in config:
        rope.pop("original_max_position_embeddings", None)
    config["rope_scaling"] = None if kind == "default" else rope | {"type": kind}
    config["torch_dtype"] = config.pop("dtype")
    return config


@on_cpu
@by_name(CASES)
def test_folder_of_transformers_4(case: Case, tmp_path: pathlib.Path) -> None:
    seed = seed_of_run()
    folder = save(make_model(case, seed), tmp_path / "model")
    rows = make_rows(seed)
    with comparison("folder of transformers 4"):
        now = run(folder, rows)
        config = folder / "config.json"
        earlier = of_transformers_4(json.loads(config.read_text()))
        assert "rope_parameters" not in earlier
        config.write_text(json.dumps(earlier))
        assert run(folder, rows) == now


@pytest.mark.parametrize("dtype", [dtype for dtype, kind in FOLDER_TYPES.items() if kind != PLAIN])
@by_name(CASES)
def test_folder_of_16_bits(case: Case, dtype: str, tmp_path: pathlib.Path) -> None:
    import torch

    seed = seed_of_run()
    model = round_to(make_model(case, seed), getattr(torch, dtype))
    sizes = "10KB", "1GB"
    folder = save(model, tmp_path / "model", getattr(torch, dtype), max_shard_size=sizes[dtype == "float16"])
    assert (folder / "model.safetensors").exists() == (dtype == "float16")
    check(f"folder {FOLDER_TYPES[dtype]}", folder, model, make_rows(seed), kind=FOLDER_TYPES[dtype])


@by_name(GGUF_CASES)
def test_gguf(case: Case, tmp_path: pathlib.Path) -> None:
    from family_gguf import write_gguf

    seed = seed_of_run()
    model = make_model(case, seed)
    check(f"GGUF {PLAIN}", write_gguf(model, case.gguf, tmp_path / "model.gguf"), model, make_rows(seed), "--mutate")


def check_gguf(case: Case, widened: Case, kinds: Sequence[str], folder: pathlib.Path) -> None:
    """The case in files of these types, with widths that their blocks fill."""
    from family_gguf import write_gguf

    for kind in kinds:
        seed = seed_of_run()
        print(kind)
        model = make_model(widened, seed)
        path = write_gguf(model, case.gguf, folder / f"{kind}.gguf", kind)
        check(f"GGUF {kind}", path, model, make_rows(seed), kind=kind)


@by_name(GGUF_CASES)
def test_gguf_types(case: Case, tmp_path: pathlib.Path) -> None:
    check_gguf(case, with_block_widths(case), GGUF_TYPES, tmp_path)


@by_name(K_CASES)
def test_gguf_k_types(case: Case, tmp_path: pathlib.Path) -> None:
    """Random blocks, as nothing but llama.cpp makes them of weights; the package gguf says what they are."""
    check_gguf(case, with_k_block_widths(case), K_TYPES, tmp_path)


@pytest.mark.skipif(not IS_CONFORMANCE, reason="skipped: for make conformance")
@by_name([case for case in GGUF_CASES if case.name in ("llama", "qwen3")])
def test_gguf_of_llama_cpp(case: Case, tmp_path: pathlib.Path) -> None:
    """What llama.cpp quantised, against the values that the package gguf reads."""
    pytest.importorskip("llama_cpp", reason="skipped: without llama_cpp there are no files that llama.cpp quantised")
    from family_gguf import quantize_with_llama_cpp, take_matrices, write_gguf

    seed = seed_of_run()
    model = make_model(with_k_block_widths(case), seed)
    plain = write_gguf(model, case.gguf, tmp_path / "model.gguf")
    for mixture, types in LLAMA_CPP_TYPES.items():
        print(mixture)
        path = quantize_with_llama_cpp(plain, tmp_path / f"{mixture}.gguf", mixture)
        assert take_matrices(model, case.gguf, path) == types
        check(f"GGUF {mixture} of llama.cpp", path, model, make_rows(seed), kind=mixture)


@on_cpu
@by_name([case for case in CASES if case.name == "gemma3"])
def test_gguf_in_parts(case: Case, tmp_path: pathlib.Path) -> None:
    from family_gguf import write_gguf

    seed = seed_of_run()
    model = make_model(case, seed)
    num_tensors = sum(1 for _ in model.parameters())
    write_gguf(model, case.gguf, tmp_path / "model.gguf", split_max_tensors=(num_tensors + 2) // 3)
    parts = sorted(path.name for path in tmp_path.iterdir())
    assert parts == [f"model-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    check("GGUF in parts", tmp_path / parts[0], model, make_rows(seed))
    with pytest.raises(RuntimeError, match="is part 2 of 3; name the model by its first part"):
        run(tmp_path / parts[1], [])
    (tmp_path / parts[2]).unlink()
    with pytest.raises(RuntimeError, match=parts[2]):
        run(tmp_path / parts[0], [])


@by_name(CASES)
def test_adapter(case: Case, tmp_path: pathlib.Path) -> None:
    """Rows with and without an adapter in one batch; merged into the weights it gives the same."""
    seed = seed_of_run()
    model = make_model(case, seed)
    paths = {"folder": save(model, tmp_path / "model")}
    if case in GGUF_CASES:
        from family_gguf import write_gguf

        paths["GGUF"] = write_gguf(model, case.gguf, tmp_path / "model.gguf")
    adapted = make_adapter(model, tmp_path / "adapter", seed)
    rows = make_rows(seed, (None, "a"))
    option = f"a={tmp_path / 'adapter'}"
    results = [check(f"{form}, adapter", path, adapted, rows, "--adapter", option) for form, path in paths.items()]
    merged = adapted.merge_and_unload()
    plain = [row | {"adapter": None} for row in rows if row["adapter"]]
    of_merged = check("folder, merged adapter", save(merged, tmp_path / "merged"), merged, plain)
    for result in results:
        with_adapter = [got for row, got in zip(rows, result["rows"], strict=True) if row["adapter"]]
        with comparison("adapter and merged") as found:
            for ours, theirs in zip(with_adapter, of_merged["rows"], strict=True):
                found.error = max(found.error, error_of(ours["logits"], theirs["logits"]))
            assert found.error <= TOLERANCE


@on_cpu
def test_every_trait_of_a_family_has_a_case() -> None:
    """And the page of the design shows which."""
    import family_table

    found = family_table.traits_of_cases()
    assert not family_table.missing(found)
    assert set(found) == {case.model.removesuffix("ForCausalLM").lower() for case in CASES}
    page = family_table.PAGE.read_text()
    fresh = family_table.page_with(page, family_table.table(found))
    assert page == fresh, "python/tests/family_table.py --write brings the page up to date"


@on_cpu
def test_a_trait_without_a_case_is_seen() -> None:
    import family_table

    found = copy.deepcopy(family_table.traits_of_cases())
    del found["smollm3"]["layers without rotation"]
    for traits in found.values():
        traits.pop("rotation: yarn", None)
    assert family_table.missing(found) == ["smollm3: layers without rotation", "any family: rotation: yarn"]
