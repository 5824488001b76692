"""Arrays of each framework by the same calls, so that one test body serves all.

Torch must be there unless left out.
"""

from __future__ import annotations

import os
import secrets
from typing import Any, Protocol

import ml_dtypes
import numpy as np

SEED = int(os.environ.get("HEDDLE_TEST_SEED") or secrets.randbits(32))
"""Random data differ from run to run; HEDDLE_TEST_SEED repeats a run."""
TORCH_WANTED = os.environ.get("HEDDLE_TEST_TORCH", "1") != "0"
FLOATS = ["f32", "f16", "bf16"]
INTEGERS = ["i32", "i64"]

NUMPY_DTYPES: dict[str, Any] = {
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "i32": np.int32,
    "i64": np.int64,
    "u8": np.uint8,
    "bool": np.bool_,
}
EPSILON = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}
"""Largest relative error of one rounding to nearest."""


class Framework(Protocol):
    """One array framework."""

    def array(self, values: Any, dtype: str) -> Any:
        """A new array of the values, rounded to the dtype ("f32", "bf16", "i64" and so on)."""

    def numpy(self, array: Any) -> Any:
        """The array's values: floats as float64, integers as int64."""


class NumpyFramework:
    """NumPy, with ml_dtypes for bfloat16."""

    def array(self, values: Any, dtype: str) -> Any:
        """See Framework."""
        return np.array(values).astype(NUMPY_DTYPES[dtype], order="C")

    def numpy(self, array: Any) -> Any:
        """See Framework."""
        return array.astype(np.int64 if array.dtype.kind in "iub" else np.float64)


class TorchFramework:
    """Torch on the CPU."""

    def __init__(self) -> None:
        import torch

        self.torch = torch
        self.dtypes = {
            "f32": torch.float32,
            "f16": torch.float16,
            "bf16": torch.bfloat16,
            "i32": torch.int32,
            "i64": torch.int64,
            "u8": torch.uint8,
            "bool": torch.bool,
        }

    def array(self, values: Any, dtype: str) -> Any:
        """See Framework."""
        # By way of NumPy's rounding from double: torch rounds twice where it has to go through f32.
        rounded = np.array(values).astype(NUMPY_DTYPES[dtype])
        if dtype in FLOATS:
            rounded = rounded.astype(np.float32)
        return (
            self.torch.from_numpy(np.ascontiguousarray(rounded))
            .reshape(rounded.shape)
            .to(self.dtypes[dtype])
            .clone()
        )

    def numpy(self, array: Any) -> Any:
        """See Framework."""
        torch = self.torch
        return (
            array.detach()
            .to(torch.float64 if array.dtype.is_floating_point else torch.int64)
            .numpy()
        )


def q8_0(values: Any) -> tuple[Any, Any]:
    """Blocks of an f16 scale and 32 signed bytes: the bytes, and the values that they hold."""
    blocks = values.reshape(-1, 32)
    scale = (np.abs(blocks).max(1, keepdims=True) / 127).astype(np.float16)
    whole = np.rint(blocks / scale.astype(np.float64)).astype(np.int8)
    stored = np.concatenate([scale.view(np.uint8), whole.view(np.uint8)], 1)
    return stored, (scale.astype(np.float32) * whole.astype(np.float32)).reshape(values.shape)


def assert_close(got: Any, want: Any, dtype: str, terms: int = 1) -> None:
    """Elements agree to one rounding of the dtype and that of sums of `terms` terms in f32.

    NaN never agrees.
    """
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert got.shape == want.shape
    scale = np.abs(want).max(initial=1e-6)
    limit = EPSILON[dtype] * 1.01 * np.abs(want) + EPSILON["f32"] * (terms + 4) * scale
    if dtype == "f16":
        limit = limit + 2.0**-25  # half a subnormal step
    wrong = ~(np.abs(got - want) <= limit)
    assert not wrong.any(), (
        f"{wrong.sum()} of {wrong.size} differ, first {got[wrong][0]} for {want[wrong][0]}"
    )
