"""What holds of every operation: values, errors that name the argument, no reference left after."""

from __future__ import annotations

import contextlib
import gc
import inspect
import re
import sys
import typing
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from frameworks import TORCH_WANTED
from operator_cases import CASES, CUDA_ALONE, arrays_of, check_values, converted, flat, operation_of
from producers import OnlyDlpack

from heddle import ops
from heddle._arguments import TUPLES
from heddle._operation import OPERATIONS

Change = Callable[[Any], Any]


def torch_tensor(array: Any) -> Any:
    """A tensor on the array's memory."""
    import torch

    return torch.from_numpy(array)


FORMS: dict[str, Change] = {"numpy": lambda a: a, "dlpack": OnlyDlpack, "torch": torch_tensor}
each_case = pytest.mark.parametrize("name", CASES)
each_form = pytest.mark.parametrize(
    "form", [form for form in FORMS if form != "torch" or TORCH_WANTED]
)


@pytest.fixture(autouse=True, scope="module")
def quick_collection() -> Iterator[None]:
    """Spares the garbage collector the million objects of torch."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def run(name: str, given: dict[str, Any], form: str = "numpy") -> None:
    """The call of a case with its arrays in some form, on the memory that they have."""
    getattr(ops, operation_of(name))(**converted(given, FORMS[form]))


@each_form
@each_case
def test_outputs_have_the_values_of_the_formula(name: str, form: str) -> None:
    given, want = CASES[name]()
    run(name, given, form)
    check_values(given, want)


ELSEWHERE = {
    "test_norm.py": {"output_scale", "row_scales"},
    "test_lora.py": {"slice", "weight_dtype", "rank", "first_rank", "out_features", "plan"}
    | {"pair_starts", "pair_slots", "pair_scales", "max_pairs"},
    "test_attention.py": {"dtype", "num_layers", "layer_idx", "num_kv_heads", "page_size", "head_dim"}
    | {"k_scales", "v_scales", "k_scale", "v_scale"},
}
"""Arguments whose effect another test shows."""


def offered(name: str) -> dict[str, Any]:
    """The defaults of an operation's arguments, with the fields of tuples in place of these."""
    declared = OPERATIONS[name].declared
    hints, found = typing.get_type_hints(declared), {}
    for argument, parameter in inspect.signature(declared).parameters.items():
        alternatives = [hints[argument], *typing.get_args(hints[argument])]
        kind = next((kind for kind in TUPLES if kind in alternatives), None)
        fields = dict.fromkeys(kind._fields, inspect.Parameter.empty) | kind._field_defaults if kind else None
        found.update(fields or {argument: parameter.default})
    return found


def test_the_cases_give_every_argument_and_check_every_output() -> None:
    """So an argument that the binding put into another's place would show."""
    in_tuples = {field for kind in TUPLES for field in kind._fields}
    missing: dict[str, set[str]] = {}
    traceable = {name for name, op in OPERATIONS.items() if op.traceable} - CUDA_ALONE
    for operation in traceable:
        defaults = offered(operation)
        cases = [case() for name, case in CASES.items() if operation_of(name) == operation]
        given = {n for g, _ in cases for n, v in flat(g) if v is not None and v is not defaults[n]}
        checked = {name for _, want in cases for name in want}
        missing[operation] = (set(defaults) - given) | (outputs_of(operation) - checked)
    elsewhere = set().union(*ELSEWHERE.values())
    assert {op: names for op in missing if (names := missing[op] - elsewhere - in_tuples)} == {}
    # One function reads the fields of a tuple, for all operations.
    by_tuple = [
        set.intersection(*(missing[op] for op in traceable if kind._fields[0] in offered(op)))
        for kind in TUPLES
    ]
    assert set().union(*by_tuple) & in_tuples <= elsewhere


def with_one_changed(name: str, change: Change) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each array argument, and the call where that alone, or the first of a list, is changed.

    Of an argument that is a tuple, each array of it.
    """
    given, _ = CASES[name]()
    for argument, value in given.items():
        if isinstance(value, np.ndarray):
            yield argument, given | {argument: change(value)}
        elif isinstance(value, list) and isinstance(value[0], np.ndarray):
            yield argument, given | {argument: [change(value[0]), *value[1:]]}
        elif isinstance(value, TUPLES):
            for field, array in value._asdict().items():
                if isinstance(array, np.ndarray):
                    yield field, given | {argument: value._replace(**{field: change(array)})}


def in_double(array: Any) -> Any:
    return array.astype(np.float64)


@each_form
@each_case
def test_an_array_of_another_dtype_is_named(name: str, form: str) -> None:
    for argument, given in with_one_changed(name, in_double):
        with pytest.raises(NotImplementedError, match=rf"^{argument}(\[0\])? has .*(64|\"d\")"):
            run(name, given, form)


@each_form
@each_case
def test_an_array_of_another_rank_is_named(name: str, form: str) -> None:
    for argument, given in with_one_changed(name, lambda a: a[..., None]):
        if (name, argument) == ("dequantize", "stored"):  # bytes, of whatever shape
            continue
        with pytest.raises(ValueError, match=r"\d.*\d") as error:
            run(name, given, form)
        assert re.search(rf"\b{argument}\b", str(error.value))


def outputs_of(name: str) -> set[str]:
    """The arguments, and the fields of tuples, that the operation writes to."""
    operation = OPERATIONS[operation_of(name)]
    written = set(operation.mutates) - set(operation.only_read)
    return {argument.rpartition(".")[2] for argument in written}


@each_form
@each_case
def test_an_output_whose_elements_overlap_is_refused(name: str, form: str) -> None:
    def one_place(array: Any) -> Any:
        return np.lib.stride_tricks.as_strided(array, array.shape, [0] * array.ndim)

    for argument, given in with_one_changed(name, one_place):
        arrays = [a for a in arrays_of(given) if a.size > 1 and not any(a.strides)]
        if argument not in outputs_of(name) or not arrays:
            continue
        before = arrays[0].copy()
        said = rf"^{argument}(\[0\])? has elements that overlap in memory, but .* strides \[0"
        with pytest.raises(ValueError, match=said):
            run(name, given, form)
        np.testing.assert_array_equal(arrays[0], before)


@pytest.mark.skipif(not TORCH_WANTED, reason="skipped: HEDDLE_TEST_TORCH=0")
def test_a_leaf_that_requires_grad_is_no_output() -> None:
    import torch

    refused = set()
    for name in CASES:
        for argument, given in with_one_changed(name, lambda a: a):
            tensors = converted(given, torch_tensor)
            found = dict(flat(tensors))[argument]
            trained = found[0] if isinstance(found, list) else found
            if argument not in outputs_of(name) or not trained.is_floating_point():
                continue
            trained.requires_grad_()
            before = trained.detach().clone()
            said = rf"^{argument}(\[0\])? is a leaf that requires grad, but .*{argument}.*detach"
            for recorded in (torch.enable_grad(), torch.no_grad()):
                with recorded, pytest.raises(ValueError, match=said):
                    getattr(ops, operation_of(name))(**tensors)
            assert trained.detach().equal(before) or before.isnan().all()
            refused.add(operation_of(name))
    assert {"rms_norm", "lora_expand", "batch_decode", "kv_append", "rope"} <= refused


@each_form
@each_case
def test_calls_leave_no_reference_behind(name: str, form: str) -> None:
    right = converted(CASES[name]()[0], FORMS[form])
    *_, (_, last_changed) = with_one_changed(name, in_double)
    wrong = converted(last_changed, FORMS[form])
    given = [*right.values(), *wrong.values()]
    given += [array for value in given if isinstance(value, TUPLES) for array in value]
    watched = [v for v in given if hasattr(v, "__dlpack__") or isinstance(v, TUPLES)]
    operation = getattr(ops, operation_of(name))

    def calls(times: int) -> int:
        """The memory blocks that Python has more of after the calls."""
        blocks = sys.getallocatedblocks()
        for _ in range(times):
            operation(**right)
            with contextlib.suppress(NotImplementedError):
                operation(**wrong)
        gc.collect()
        return sys.getallocatedblocks() - blocks

    calls(3)
    references = [sys.getrefcount(v) for v in watched]
    # Other code allocates, too, now and then; what a call leaves after shows every time.
    assert min(calls(100) for _ in range(4)) < 100
    assert [sys.getrefcount(v) for v in watched] == references


def test_lists_of_arrays_and_tables_leave_no_reference_behind() -> None:
    import heddle

    weight, x, y = np.ones((4, 4), np.float32), np.ones((2, 4), np.float32), np.zeros((2, 4), "f4")
    packed = heddle.PackedWeight(weight, "F32", 4, 4)
    slots, outs = np.zeros(2, np.int64), [y]
    batch = heddle.LoraBatch(slot_ids=slots)
    counts = []
    for _ in range(50):
        a = heddle.AdapterTable(1, [4], 4)
        b = heddle.AdapterTable(1, [4], 4, layout="rank_minor")
        a.set(0, 0, weight)
        b.set(0, 0, weight)
        ops.lora_apply(outs, x, a, b, batch)
        ops.linear(outs, x, [packed])
        ops.linear(y, x, packed)
        del a, b
        counts.append([sys.getrefcount(v) for v in (weight, x, y, packed, slots, outs, batch)])
    assert counts[-1] == counts[0]
