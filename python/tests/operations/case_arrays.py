"""What the calls in src/ops/<family>/test/<family>_calls.py are made of: arrays and formulas in NumPy.

A call is a function that returns the arguments by name, outputs included, and the values that the
outputs must have afterwards. Outputs begin with values that a call must overwrite or leave alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from frameworks import SEED

RNG = np.random.default_rng(SEED)
"""Each call draws new values: a captured graph is replayed with those of a second call."""

Call = tuple[dict[str, Any], dict[str, Any]]


def randn(*shape: int, dtype: Any = np.float32) -> Any:
    """Normally distributed values."""
    return RNG.standard_normal(shape).astype(dtype)


def nan(*shape: int, dtype: Any = np.float32) -> Any:
    """An output of floats."""
    return np.full(shape, np.nan, dtype)


def nines(*shape: int, dtype: Any = np.int64) -> Any:
    """An output of integers."""
    return np.full(shape, 9, dtype)


def i32(*values: Any) -> Any:
    """The values as int32; one list makes a matrix of several."""
    return np.array(values, np.int32)


def i64(*values: Any) -> Any:
    """The values as int64."""
    return np.array(values, np.int64)


def f32(*values: Any) -> Any:
    """The values as float32."""
    return np.array(values, np.float32)


def angles(
    positions: Any, half: int, theta: float = 1e4, scale: float = 1.0, llama3: Any = None
) -> Any:
    """[tokens, half]: the angles of rotary positions, by which element d turns with d + half."""
    frequency = theta ** (-np.arange(half) / half)
    if llama3:
        factor, low, high, original = llama3
        turns = original * frequency / (2 * np.pi)
        kept = np.clip((turns - low) / (high - low), 0, 1)
        frequency = frequency * (kept + (1 - kept) / factor)
    return positions[:, None] / scale * frequency


def rotated(x: Any, positions: Any, rotary_dim: int = 0, **options: Any) -> Any:
    """x [tokens, heads, head_dim], its first rotary_dim elements turned, in double."""
    half = (rotary_dim or x.shape[-1]) // 2
    angle = angles(positions, half, **options)[:, None]
    a, b, rest = np.split(x.astype(np.float64), [half, 2 * half], -1)
    cos, sin = np.cos(angle), np.sin(angle)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], -1)


def drawn(seed: Any, step: Any, purpose: int = 0) -> Any:
    """Of 1024 tokens that are all as likely the drawn ones, by philox4x32-10 (docs/ops/verify.md)."""
    low, tokens = 0xFFFFFFFF, []
    for key, count in zip(seed.tolist(), step.tolist(), strict=True):
        k0, k1, words = key & low, key >> 32 & low, [count & low, count >> 32 & low, purpose, 0]
        for _ in range(10):
            a, b = 0xD2511F53 * words[0], 0xCD9E8D57 * words[2]
            words = [b >> 32 ^ words[1] ^ k0, b & low, a >> 32 ^ words[3] ^ k1, a & low]
            k0, k1 = k0 + 0x9E3779B9 & low, k1 + 0xBB67AE85 & low
        tokens.append(words[0] >> 22)
    return np.array(tokens)
