"""heddle.ops.rms_norm: dtypes, and outputs of f8e4m3, which torch.from_numpy does not take."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from frameworks import FLOATS, Framework, assert_close

from heddle import ops


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(3, 7), (33,), (2, 0, 5)])
def test_rms_norm_in_place(
    framework: Framework, rng: np.random.Generator, dtype: str, shape: tuple[int, ...]
) -> None:
    x = framework.array(rng.standard_normal(shape), dtype)
    weight = framework.array(rng.standard_normal(shape[-1]), "f32")
    values = framework.numpy(x)
    want = values / np.sqrt((values**2).mean(-1, keepdims=True) + 1e-6) * framework.numpy(weight)
    assert ops.rms_norm(x, x, weight) is None
    assert_close(framework.numpy(x), want, dtype, terms=shape[-1])


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
