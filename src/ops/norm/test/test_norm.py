"""heddle.ops.rms_norm and fused_add_rms_norm."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from frameworks import FLOATS, Framework, assert_close

from heddle import ops


def reference(x: Any, weight: Any, epsilon: float, weight_offset: int) -> Any:
    """The formula, in double."""
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon) * (weight_offset + weight)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (2, 5, 64), (33,), (4, 1000)])
@pytest.mark.parametrize(("epsilon", "weight_offset"), [(1e-6, 0), (1e-2, 1)])
def test_rms_norm(
    framework: Framework,
    rng: np.random.Generator,
    dtype: str,
    shape: tuple[int, ...],
    epsilon: float,
    weight_offset: int,
) -> None:
    x = framework.array(rng.standard_normal(shape), dtype)
    weight = framework.array(rng.standard_normal(shape[-1]), "f32")
    y = framework.array(np.full(shape, np.nan), dtype)
    assert ops.rms_norm(y, x, weight, epsilon=epsilon, weight_offset=weight_offset) is None
    want = reference(framework.numpy(x), framework.numpy(weight), epsilon, weight_offset)
    assert_close(framework.numpy(y), want, dtype, terms=shape[-1])


@pytest.mark.parametrize("dtype", FLOATS)
def test_fused_add_rms_norm_takes_the_norm_of_the_rounded_residual(
    framework: Framework, rng: np.random.Generator, dtype: str
) -> None:
    x = framework.array(rng.standard_normal((5, 96)), dtype)
    residual = framework.array(rng.standard_normal((5, 96)), dtype)
    weight = framework.array(rng.standard_normal(96), dtype)
    total = framework.array(framework.numpy(x) + framework.numpy(residual), dtype)
    y = framework.array(np.zeros((5, 96)), dtype)
    ops.fused_add_rms_norm(output=y, residual=residual, input=x, weight=weight)
    assert_close(framework.numpy(residual), framework.numpy(total), dtype)
    want = reference(framework.numpy(residual), framework.numpy(weight), 1e-6, 0)
    assert_close(framework.numpy(y), want, dtype, terms=96)


def test_strided_rows_are_honoured_and_the_rest_untouched(
    framework: Framework, rng: np.random.Generator
) -> None:
    x = framework.array(rng.standard_normal((6, 48)), "f32")
    weight = framework.array(np.ones(32), "f32")
    y = framework.array(np.full((12, 40), 7.0), "f32")
    ops.rms_norm(y[::2, :32], x[:, 16:], weight)
    got = framework.numpy(y)
    assert_close(
        got[::2, :32], reference(framework.numpy(x)[:, 16:], np.ones(32), 1e-6, 0), "f32", terms=32
    )
    assert (got[1::2] == 7).all() and (got[:, 32:] == 7).all()


def test_in_place_and_empty(framework: Framework, rng: np.random.Generator) -> None:
    x = framework.array(rng.standard_normal((3, 16)), "f32")
    weight = framework.array(rng.standard_normal(16), "f32")
    want = reference(framework.numpy(x), framework.numpy(weight), 1e-6, 0)
    ops.rms_norm(x, x, weight)
    assert_close(framework.numpy(x), want, "f32", terms=16)
    nothing = framework.array(np.zeros((0, 16)), "f32")
    ops.rms_norm(nothing, nothing, weight)


def test_a_wrong_shape_names_tensor_axis_and_both_values(framework: Framework) -> None:
    x, weight = framework.array(np.ones((2, 8)), "f32"), framework.array(np.ones(5), "f32")
    with pytest.raises(ValueError, match=r"weight.size\(0\) is 5, expected .* = 8"):
        ops.rms_norm(x, x, weight)


def test_an_unknown_dtype_is_not_implemented(framework: Framework) -> None:
    x = framework.array(np.ones((2, 8)), "i32")
    with pytest.raises(NotImplementedError, match="is i32, supported: f32, f16, bf16"):
        ops.rms_norm(x, x, x[0])


def test_float8_is_the_rounding_of_the_f32_value(rng: np.random.Generator) -> None:
    x, weight = rng.standard_normal((2, 5, 100), np.float32), np.ones(100, np.float32)
    value, scales = np.empty_like(x), np.empty((2, 5), np.float32)
    y = np.empty(x.shape, ml_dtypes.float8_e4m3fn)
    ops.rms_norm(value, x, weight)
    ops.rms_norm(y, x, weight, row_scales=scales)
    assert (scales == np.abs(value).max(-1) / np.float32(448)).all()
    want = value * (np.float32(1) / scales)[..., None]
    assert (y == np.clip(want, -448, 448).astype(y.dtype)).all()
    ops.rms_norm(y, x, weight, output_scale=np.array([0.001], np.float32))
    want = value * (np.float32(1) / np.float32(0.001))
    assert (y == np.clip(want, -448, 448).astype(y.dtype)).all()
    with pytest.raises(ValueError, match="output is f8e4m3, but of output_scale"):
        ops.rms_norm(y, x, weight)
