"""Test arrays of all memory layouts, and outputs that notice a write beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
from frameworks import Framework

LAYOUTS = ["whole", "sliced", "transposed"]


def laid_out(framework: Framework, values: Any, dtype: str, layout: str) -> Any:
    """An array without gaps, one cut out of a larger one with steps, or one with axes swapped."""
    values = np.asarray(values)
    if layout == "sliced":
        larger = np.full([2 * n + 3 for n in values.shape], 55, values.dtype)
        inner = tuple(slice(1, 1 + 2 * n, 2) for n in values.shape)
        larger[inner] = values
        return framework.array(larger, dtype)[inner]
    if layout == "transposed" and values.ndim > 1:
        return framework.array(values.swapaxes(-1, -2), dtype).swapaxes(-1, -2)
    return framework.array(values, dtype)


class Guarded:
    """An output in the middle of a larger array, which must stay as it is around it."""

    def __init__(
        self, framework: Framework, values: Any, dtype: str, transposed: bool = False
    ) -> None:
        values = np.asarray(values)
        self._framework, self._transposed = framework, transposed
        larger = np.full([n + 4 for n in values.shape], 93, values.dtype)
        self._inner = tuple(slice(2, 2 + n) for n in values.shape)
        larger[self._inner] = values
        self._larger = framework.array(larger.swapaxes(-1, -2) if transposed else larger, dtype)
        self.array = (self._larger.swapaxes(-1, -2) if transposed else self._larger)[self._inner]

    def values(self) -> Any:
        """The output's values, after a look at what lies around it."""
        larger = self._framework.numpy(self._larger).copy()
        larger = larger.swapaxes(-1, -2) if self._transposed else larger
        inside = larger[self._inner].copy()
        larger[self._inner] = 93
        assert np.all(larger == 93), "something was written outside of the output"
        return inside


def address(array: Any) -> int:
    """Where its first element lies."""
    return int(array.ctypes.data if isinstance(array, np.ndarray) else array.data_ptr())


def pointer_table(framework: Framework, arrays: list[Any]) -> Any:
    """Addresses of the arrays, which the caller keeps; 0 for None."""
    return framework.array([0 if a is None else address(a) for a in arrays], "i64")


def rounded(framework: Framework, values: Any, dtype: str) -> Any:
    """The values that an array of them has, in double."""
    return framework.numpy(framework.array(values, dtype))
