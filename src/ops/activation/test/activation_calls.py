"""Calls of the gated activations, for python/tests/operations/operator_cases.py."""

import math

import numpy as np
from case_arrays import Call, nan, randn


def silu_and_mul() -> Call:
    rows = randn(3, 16)
    gate, up = rows[:, :8], rows[:, 8:]
    return {"y": nan(3, 8), "gate": gate, "up": up}, {"y": gate / (1 + np.exp(-gate)) * up}


def gelu_and_mul() -> Call:
    gate, up = randn(3, 8), randn(3, 8)
    half = (1 + np.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3))) / 2
    return {"y": nan(3, 8), "gate": gate, "up": up, "form": "tanh"}, {"y": gate * half * up}


def gelu_and_mul__erf() -> Call:
    gate, up = randn(3, 8), randn(3, 8)
    half = (1 + np.vectorize(math.erf)(gate / math.sqrt(2))) / 2
    return {"y": nan(3, 8), "gate": gate, "up": up, "form": "erf"}, {"y": gate * half * up}


CALLS = [silu_and_mul, gelu_and_mul, gelu_and_mul__erf]
