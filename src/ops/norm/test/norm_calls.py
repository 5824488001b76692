"""Calls of the norms, for python/tests/operations/operator_cases.py."""

from typing import Any

import numpy as np
from case_arrays import Call, nan, randn


def _normalised(x: Any, epsilon: float) -> Any:
    return x / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True) + epsilon)


def rms_norm() -> Call:
    """Of rows in larger tensors."""
    x, weight, memory = randn(3, 24)[:, 8:20], randn(12), nan(6, 16)
    given = {"output": memory[::2, 2:14], "input": x, "weight": weight, "epsilon": 0.5}
    return given | {"weight_offset": 1}, {"output": _normalised(x, 0.5) * (1 + weight)}


def fused_add_rms_norm() -> Call:
    x, residual, weight = randn(3, 8), randn(3, 8), randn(8)
    total = x + residual
    given = {"output": nan(3, 8), "residual": residual, "input": x, "weight": weight}
    want = {"output": _normalised(total, 0.25) * (1 + weight), "residual": total}
    return given | {"epsilon": 0.25, "weight_offset": 1}, want


CALLS = [rms_norm, fused_add_rms_norm]
