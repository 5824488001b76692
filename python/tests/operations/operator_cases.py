"""Calls of every operation that is a torch operator, with the values that they must give.

The calls are small, valid and change at least one output. test_every_operation.py runs them with
each array framework, test_every_operation_cuda.py on a GPU, test_torch_operators.py compiled and
through torch.library.opcheck. Those of a family are the CALLS of its
src/ops/<family>/test/<family>_calls.py: `rope__from_a_table` is a call of `rope`.
"""

from __future__ import annotations

import pathlib
import runpy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from case_arrays import Call

from heddle._arguments import TUPLES

CUDA_ALONE = {"lora_plan"}
"""Operations of arrays on a GPU alone; test_lora_cuda.py has their calls."""
ROOT = pathlib.Path(__file__).parents[3]
CASES: dict[str, Callable[[], Call]] = {}
for file in sorted(ROOT.glob("src/ops/*/test/*_calls.py")):
    CASES.update({call.__name__: call for call in runpy.run_path(str(file))["CALLS"]})
assert CASES, f"no calls in {ROOT}/src/ops"


def operation_of(case: str) -> str:
    """The operation that a case calls."""
    return case.partition("__")[0]


def converted(values: Any, convert: Callable[[Any], Any], kind: type[Any] = np.ndarray) -> Any:
    """The arguments with each array, of NumPy or of another kind, converted."""
    if isinstance(values, kind):
        return convert(values)
    if isinstance(values, TUPLES):
        return type(values)(*(converted(v, convert, kind) for v in values))
    if isinstance(values, dict):
        return {key: converted(value, convert, kind) for key, value in values.items()}
    return [converted(v, convert, kind) for v in values] if isinstance(values, list) else values


def flat(values: Any) -> Iterator[tuple[str, Any]]:
    """The arguments of a call by name, with the fields of tuples in place of these."""
    for name, value in values.items():
        yield from value._asdict().items() if isinstance(value, TUPLES) else [(name, value)]


def arrays_of(values: Any, kind: type[Any] = np.ndarray) -> list[Any]:
    """All arrays of a call."""
    if isinstance(values, kind):
        return [values]
    items = values.values() if isinstance(values, dict) else values
    is_group = isinstance(values, (dict, list, tuple))
    return [array for value in items for array in arrays_of(value, kind)] if is_group else []


def check_values(given: dict[str, Any], want: dict[str, Any], error: float = 2e-5) -> None:
    """The outputs among `given` have the values wanted: integers exactly, floats to an error."""
    found = dict(flat(given))
    for name, values in want.items():
        many = isinstance(values, list) and isinstance(found[name], list)
        for got, expected in zip(*((found[name], values) if many else ([found[name]], [values]))):
            if got.dtype.kind != "f":
                np.testing.assert_array_equal(got, expected, name)
                continue
            step = 2e-3 if got.dtype == np.float16 else error
            np.testing.assert_allclose(got, expected, step, step, equal_nan=False, err_msg=name)
