"""What holds of every operation: errors name the argument, a call leaves no reference behind."""

from __future__ import annotations

import contextlib
import gc
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from frameworks import TORCH_WANTED

if not TORCH_WANTED:
    pytest.skip("skipped: HEDDLE_TEST_TORCH=0", allow_module_level=True)

import numpy as np
import operator_cases
import torch
from producers import OnlyDlpack

from heddle import ops
from heddle._arguments import TUPLES
from heddle._operation import OPERATIONS

FORMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "numpy": lambda t: t.numpy(),
    "torch": lambda t: t,
    "dlpack": OnlyDlpack,
}
each_operation = pytest.mark.parametrize("name", operator_cases.CASES)
each_form = pytest.mark.parametrize("form", FORMS)


@pytest.fixture(autouse=True, scope="module")
def quick_collection() -> Iterator[None]:
    """Spares the garbage collector the million objects of torch."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def arguments_of(name: str) -> dict[str, Any]:
    """The valid call of operator_cases, all arguments by name."""
    args, kwargs = operator_cases.CASES[name]()
    names = inspect.signature(OPERATIONS[name].declared).parameters
    return dict(zip(names, args, strict=False)) | kwargs


def converted(values: Any, form: str) -> Any:
    if isinstance(values, torch.Tensor):
        return FORMS[form](values)
    if isinstance(values, TUPLES):
        return type(values)(*(converted(v, form) for v in values))
    return [converted(v, form) for v in values] if isinstance(values, list) else values


def flat(values: Any) -> list[torch.Tensor]:
    """All tensors of a call."""
    if isinstance(values, torch.Tensor):
        return [values]
    items = values.values() if isinstance(values, dict) else values
    is_group = isinstance(values, (dict, list, tuple))
    return [t for value in items for t in flat(value)] if is_group else []


def with_one_changed(
    name: str, change: Callable[[torch.Tensor], torch.Tensor]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each array argument, and the call where that alone, or the first of a list, is changed.

    Of an argument that is a tuple, each array of it.
    """
    given = arguments_of(name)
    for argument, value in given.items():
        if isinstance(value, torch.Tensor):
            yield argument, given | {argument: change(value)}
        elif isinstance(value, list) and isinstance(value[0], torch.Tensor):
            yield argument, given | {argument: [change(value[0]), *value[1:]]}
        elif isinstance(value, TUPLES):
            for field, array in value._asdict().items():
                if isinstance(array, torch.Tensor):
                    yield field, given | {argument: value._replace(**{field: change(array)})}


@each_form
@each_operation
def test_an_array_of_another_dtype_is_named(name: str, form: str) -> None:
    for argument, given in with_one_changed(name, torch.Tensor.double):
        given = {key: converted(value, form) for key, value in given.items()}
        with pytest.raises(NotImplementedError, match=rf"^{argument}(\[0\])? has .*(64|\"d\")"):
            getattr(ops, name)(**given)


@each_form
@each_operation
def test_an_array_of_another_rank_is_named(name: str, form: str) -> None:
    for argument, given in with_one_changed(name, lambda t: t[..., None]):
        if (name, argument) == ("dequantize", "stored"):  # bytes, of whatever shape
            continue
        given = {key: converted(value, form) for key, value in given.items()}
        with pytest.raises(ValueError, match=r"\d.*\d") as error:
            getattr(ops, name)(**given)
        assert re.search(rf"\b{argument}\b", str(error.value))


def outputs_of(name: str) -> set[str]:
    """The arguments, and the fields of tuples, that the operation writes to."""
    operation = OPERATIONS[name]
    written = set(operation.mutates) - set(operation.only_read)
    return {argument.rpartition(".")[2] for argument in written}


@each_form
@each_operation
def test_an_output_whose_elements_overlap_is_refused(name: str, form: str) -> None:
    def one_place(t: torch.Tensor) -> torch.Tensor:
        return t.as_strided(t.shape, [0] * t.ndim)

    refused = 0
    for argument, given in with_one_changed(name, one_place):
        arrays = [t for t in flat(given) if t.numel() > 1 and not any(t.stride())]
        if argument not in outputs_of(name) or not arrays:
            continue
        before = arrays[0].clone()
        given = {key: converted(value, form) for key, value in given.items()}
        said = rf"^{argument}(\[0\])? has elements that overlap in memory, but .* strides \[0"
        with pytest.raises(ValueError, match=said):
            getattr(ops, name)(**given)
        assert torch.equal(arrays[0], before)
        refused += 1
    small = {n for n in outputs_of(name) if n in arguments_of(name)}
    assert refused or all(t.numel() < 2 for t in flat([arguments_of(name)[n] for n in small]))


def test_a_leaf_that_requires_grad_is_no_output() -> None:
    def leaf(t: torch.Tensor) -> torch.Tensor:
        return t.clone().requires_grad_() if t.is_floating_point() else t

    refused = set()
    for name in operator_cases.CASES:
        for argument, given in with_one_changed(name, leaf):
            trained = [t for t in flat(given) if t.requires_grad]
            if argument not in outputs_of(name) or not trained:
                continue
            before = trained[0].detach().clone()
            said = rf"^{argument}(\[0\])? is a leaf that requires grad, but .*{argument}.*detach"
            for recorded in (torch.enable_grad(), torch.no_grad()):
                with recorded, pytest.raises(ValueError, match=said):
                    getattr(ops, name)(**given)
            assert torch.equal(trained[0].detach(), before)
            refused.add(name)
    assert {"rms_norm", "lora_expand", "batch_decode", "kv_append", "rope"} <= refused


@each_form
@each_operation
def test_calls_leave_no_reference_behind(name: str, form: str) -> None:
    right = {key: converted(value, form) for key, value in arguments_of(name).items()}
    *_, (_, last_changed) = with_one_changed(name, torch.Tensor.double)
    wrong = {key: converted(value, form) for key, value in last_changed.items()}
    given = [*right.values(), *wrong.values()]
    given += [array for value in given if isinstance(value, TUPLES) for array in value]
    watched = [v for v in given if hasattr(v, "__dlpack__") or isinstance(v, TUPLES)]
    operation = getattr(ops, name)

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
    # Others allocate, too, now and then; what a call leaves behind is there every time.
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
