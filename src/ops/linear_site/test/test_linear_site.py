"""heddle.ops.linear_site."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from frameworks import Framework, assert_close, q8_0

import heddle
from heddle import LoraBatch, ops

TOKENS, WIDTH, RANK, SLOTS, OUTS = 9, 64, 8, 3, (40, 24)
TERMS = 8  # on a GPU h enters the product with B as two halves


def device_of(array: Any) -> Any:
    """Where an array lies; NumPy's before 2.0 do not say."""
    return getattr(array, "device", "cpu")


def run_site(
    framework: Framework, rng: np.random.Generator, dtype: str, y_dtype: str, has_adapters: bool
) -> tuple[list[Any], list[np.ndarray]]:
    """The results, and what they are in f64."""
    x = framework.array(rng.standard_normal((TOKENS, WIDTH)), dtype)
    weight = [framework.array(rng.standard_normal((n, WIDTH)) / 8, dtype) for n in OUTS]
    bias = [framework.array(rng.standard_normal(n), dtype) for n in OUTS]
    y = [framework.array(np.full((TOKENS, n), np.nan), y_dtype) for n in OUTS]
    f64 = [framework.numpy(v).astype(np.float64) for v in (x, *weight, *bias)]
    want = [f64[0] @ w.T + c for w, c in zip(f64[1:3], f64[3:], strict=True)]
    options: dict[str, Any] = {}
    if has_adapters:
        device = device_of(x)
        a = heddle.AdapterTable(SLOTS, [WIDTH] * 2, RANK, dtype=dtype, device=device)
        b = heddle.AdapterTable(
            SLOTS, OUTS, RANK, dtype=dtype, layout="rank_minor", device=device
        )
        slots = rng.integers(-1, SLOTS, TOKENS)
        for slot in range(SLOTS):
            for s, out in enumerate(OUTS):
                half_a = framework.array(rng.standard_normal((RANK, WIDTH)) / 8, dtype)
                half_b = framework.array(rng.standard_normal((out, RANK)), dtype)
                a.set(slot, s, half_a)
                b.set(slot, s, half_b, scale=0.5)
                rows = slots == slot
                product = framework.numpy(half_b).astype(np.float64) @ framework.numpy(half_a)
                want[s][rows] += 0.5 * f64[0][rows] @ product.T
        options = {"a": a, "b": b, "batch": LoraBatch(slot_ids=framework.array(slots, "i32"))}
    ops.linear_site(y, x, weight, bias=bias, **options)
    return y, want


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("has_float_y", [False, True])
@pytest.mark.parametrize("has_adapters", [False, True])
def test_linear_site(
    framework: Framework,
    rng: np.random.Generator,
    dtype: str,
    has_float_y: bool,
    has_adapters: bool,
) -> None:
    y_dtype = "f32" if has_float_y else dtype
    y, want = run_site(framework, rng, dtype, y_dtype, has_adapters)
    for got, expected in zip(y, want, strict=True):
        assert_close(framework.numpy(got), expected, y_dtype, terms=TERMS * WIDTH)


@pytest.mark.parametrize("path", ["decode", "prompt"])
def test_packed_weights_beside_dense_ones(
    framework: Framework, rng: np.random.Generator, path: str
) -> None:
    x = framework.array(rng.standard_normal((TOKENS, WIDTH)), "bf16")
    dense = framework.array(rng.standard_normal((OUTS[1], WIDTH)) / 8, "bf16")
    stored, plain = q8_0(rng.standard_normal((OUTS[0], WIDTH)) / 8)
    packed = heddle.PackedWeight(stored, "Q8_0", OUTS[0], WIDTH).to(device_of(x))
    if path == "prompt" and packed.device != "cpu":  # rounds them to the dtype of x
        plain = framework.numpy(framework.array(plain, "bf16"))
    y = [framework.array(np.full((TOKENS, n), np.nan), "f32") for n in (*OUTS, OUTS[0])]
    ops.linear_site(y, x, [packed, dense, packed], path=path)
    rows = framework.numpy(x)
    for got, weight in zip(y, [plain, framework.numpy(dense), plain], strict=True):
        assert_close(framework.numpy(got), rows @ weight.T, "f32", terms=WIDTH)
