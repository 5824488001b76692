"""Test arrays of all memory layouts, and outputs that notice a write next to them."""

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
    """An output inside a larger array, laid out as told, which must stay as it is around it."""

    def __init__(
        self, framework: Framework, values: Any, dtype: str, layout: str = "whole"
    ) -> None:
        values = np.asarray(values)
        step = 2 if layout == "sliced" else 1
        self._framework, self._swapped = framework, layout == "transposed" and values.ndim > 1
        larger = np.full([step * n + 4 for n in values.shape], 93, values.dtype)
        self._inner = tuple(slice(2, 2 + step * n, step) for n in values.shape)
        larger[self._inner] = values
        self._larger = framework.array(larger.swapaxes(-1, -2) if self._swapped else larger, dtype)
        self.array = (self._larger.swapaxes(-1, -2) if self._swapped else self._larger)[self._inner]

    def values(self) -> Any:
        """The output's values, after a look at what lies around it."""
        larger = self._framework.numpy(self._larger).copy()
        larger = larger.swapaxes(-1, -2) if self._swapped else larger
        inside = larger[self._inner].copy()
        larger[self._inner] = 93
        assert np.all(larger == 93), "something was written outside of the output"
        return inside


def address(array: Any) -> int:
    """Where its first element lies."""
    return int(array.ctypes.data if isinstance(array, np.ndarray) else array.data_ptr())


def pointer_table(framework: Framework, arrays: list[Any], layout: str = "whole") -> Any:
    """Addresses of the arrays, which the caller keeps; 0 for None."""
    addresses = np.array([0 if a is None else address(a) for a in arrays], np.int64)
    return laid_out(framework, addresses, "i64", layout)


def rounded(framework: Framework, values: Any, dtype: str) -> Any:
    """The values that an array of them has, in double."""
    return framework.numpy(framework.array(values, dtype))
