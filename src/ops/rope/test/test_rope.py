"""heddle.ops.rope and rope_table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from frameworks import FLOATS, INTEGERS, Framework, assert_close

from heddle import ops


def angles(positions: Any, half: int, theta: float, scale: float = 1.0) -> Any:
    """[tokens, half]"""
    return positions[:, None] / scale * theta ** (-np.arange(half) / half)


@pytest.mark.parametrize("ids", INTEGERS)
def test_rope_table(framework: Framework, ids: str) -> None:
    positions = np.array([0, 1, 77, 4000])
    cos, sin = (framework.array(np.zeros((4, 6)), "f32") for _ in range(2))
    factors = np.linspace(1, 3, 6)
    ops.rope_table(
        cos,
        sin,
        framework.array(positions, ids),
        theta=1e3,
        scale=2.0,
        frequency_factors=framework.array(factors, "f32"),
    )
    want = angles(positions, 6, 1e3, 2.0) / np.float32(factors)
    assert np.abs(framework.numpy(cos) - np.cos(want)).max() < 2e-7
    assert np.abs(framework.numpy(sin) - np.sin(want)).max() < 2e-7


def test_llama3_scaling_stretches_long_wavelengths(framework: Framework) -> None:
    positions = framework.array([100], "i32")
    cos, sin = (framework.array(np.zeros((1, 64)), "f32") for _ in range(2))
    ops.rope_table(cos, sin, positions, theta=5e5, llama3_scaling=(8.0, 1.0, 4.0, 8192.0))
    angle = angles(np.array([100]), 64, 5e5)
    assert np.abs(framework.numpy(sin)[0, 0] - np.sin(angle[0, 0])) < 2e-7
    assert np.abs(framework.numpy(sin)[0, -1] - np.sin(angle[0, -1] / 8)) < 2e-7


@pytest.mark.parametrize("dtype", FLOATS)
def test_rope_from_a_table_and_from_positions(
    framework: Framework, rng: np.random.Generator, dtype: str
) -> None:
    x = framework.array(rng.standard_normal((4, 3, 10)), dtype)
    other = framework.array(framework.numpy(x), dtype)
    positions = framework.array([0, 3, 50, 9], "i64")
    cos, sin = (framework.array(np.zeros((4, 4)), "f32") for _ in range(2))
    ops.rope_table(cos, sin, positions, rotary_dim=8)
    before = framework.numpy(x).copy()
    ops.rope(x, cos, sin)
    ops.rope(other, positions=positions, rotary_dim=8)
    assert (framework.numpy(x) == framework.numpy(other)).all()
    angle = angles(np.array([0, 3, 50, 9]), 4, 1e4)[:, None]
    a, b = before[..., :4], before[..., 4:8]
    want = np.concatenate(
        [
            a * np.cos(angle) - b * np.sin(angle),
            b * np.cos(angle) + a * np.sin(angle),
            before[..., 8:],
        ],
        -1,
    )
    assert_close(framework.numpy(x), want, dtype, terms=8)
    for wrong in ({}, {"cos": cos}, {"cos": cos, "sin": sin, "positions": positions}):
        with pytest.raises(ValueError, match="rope takes cos and sin, or positions"):
            ops.rope(x, **wrong)
