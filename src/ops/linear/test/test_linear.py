"""heddle.ops.linear and dequantize, with packed weights."""

from __future__ import annotations

import numpy as np
import pytest
from frameworks import FLOATS, Framework, assert_close, q8_0

import heddle
from heddle import ops


def test_linear_on_packed_blocks(framework: Framework, rng: np.random.Generator) -> None:
    stored, plain = q8_0(rng.standard_normal((19, 64)))
    weight = heddle.PackedWeight(
        framework.array(stored, "u8"), "Q8_0", out_features=19, in_features=64
    )
    assert (weight.type, weight.out_features, weight.in_features) == ("Q8_0", 19, 64)
    assert weight.nbytes >= stored.nbytes
    x = framework.array(rng.standard_normal((3, 64)), "f32")
    y = framework.array(np.full((3, 19), np.nan), "f32")
    ops.linear(y, x, weight)
    assert_close(framework.numpy(y), framework.numpy(x) @ plain.T, "f32", terms=64)

    rows = framework.array(np.zeros((2, 64)), "f32")
    ops.embedding(rows, framework.array([18, 20], "i32"), weight)
    assert (framework.numpy(rows)[0] == plain[18]).all() and (framework.numpy(rows)[1] == 0).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_linear_on_several_dense_weights(
    framework: Framework, rng: np.random.Generator, dtype: str
) -> None:
    dense = [framework.array(rng.standard_normal((n, 33)), dtype) for n in (5, 40)]
    weights = [heddle.PackedWeight(w, dtype.upper(), w.shape[0], 33) for w in dense]
    x = framework.array(rng.standard_normal((4, 33)), "f32")
    outs = [framework.array(np.zeros((4, n)), "f32") for n in (5, 40)]
    ops.linear(outs, x, weights)
    for out, w, packed in zip(outs, dense, weights, strict=True):
        assert_close(
            framework.numpy(out), framework.numpy(x) @ framework.numpy(w).T, "f32", terms=33
        )
        alone = framework.array(np.zeros(tuple(out.shape)), "f32")
        ops.linear(alone, x, packed)
        assert (framework.numpy(alone) == framework.numpy(out)).all()
