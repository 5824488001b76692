"""Calls of rotary positions, for python/tests/operations/operator_cases.py."""

import numpy as np
from case_arrays import Call, angles, f32, i32, i64, nan, randn, rotated

OPTIONS = {"theta": 5e5, "scale": 2.0, "llama3_scaling": [8.0, 1.0, 4.0, 64.0]}
FORMULA = {"theta": 5e5, "scale": 2.0, "llama3": OPTIONS["llama3_scaling"]}


def rope_table() -> Call:
    positions, factors = i64(0, 5, 90), f32(1, 1.5, 2, 3)
    given = {"cos": nan(3, 4), "sin": nan(3, 4), "positions": positions, "rotary_dim": 8}
    angle = angles(positions, 4, **FORMULA) / factors
    want = {"cos": np.cos(angle), "sin": np.sin(angle)}
    return given | OPTIONS | {"frequency_factors": factors}, want


def rope() -> Call:
    x, positions = randn(3, 2, 10), i32(1, 5, 90)
    given = {"x": x, "positions": positions, "rotary_dim": 8} | OPTIONS
    return given, {"x": rotated(x, positions, 8, **FORMULA)}


def rope__from_a_table() -> Call:
    x, angle = randn(3, 2, 10), randn(3, 4)
    a, b, rest = np.split(x, [4, 8], -1)
    cos, sin = np.cos(angle), np.sin(angle)
    c, s = cos[:, None], sin[:, None]
    want = np.concatenate([a * c - b * s, b * c + a * s, rest], -1)
    return {"x": x, "cos": cos, "sin": sin}, {"x": want}


CALLS = [rope_table, rope, rope__from_a_table]
