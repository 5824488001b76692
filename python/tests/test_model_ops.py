"""heddle.ops.silu_and_mul, rope_table, rope, embedding, linear, dequantize, sample and greedy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from frameworks import FLOATS, INTEGERS, Framework, assert_close

import heddle
from heddle import ops


@pytest.mark.parametrize("dtype", FLOATS)
def test_silu_and_mul(framework: Framework, rng: np.random.Generator, dtype: str) -> None:
    both = framework.array(rng.standard_normal((5, 26)), dtype)
    y = framework.array(np.full((5, 13), np.nan), dtype)
    ops.silu_and_mul(y, both[:, :13], both[:, 13:])
    gate, up = np.split(framework.numpy(both), 2, axis=1)
    assert_close(framework.numpy(y), gate / (1 + np.exp(-gate)) * up, dtype, terms=4)


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


@pytest.mark.parametrize("dtype", FLOATS)
def test_embedding(framework: Framework, rng: np.random.Generator, dtype: str) -> None:
    table = framework.array(rng.standard_normal((7, 5)), dtype)
    y = framework.array(np.full((4, 5), np.nan), "f32")
    ops.embedding(y, framework.array([6, -1, 0, 7], "i64"), table)
    want = np.zeros((4, 5))
    want[[0, 2]] = framework.numpy(table)[[6, 0]]
    assert (framework.numpy(y) == want).all()


def q8_0(values: Any) -> tuple[Any, Any]:
    """Blocks of an f16 scale and 32 signed bytes: the bytes, and the values that they hold."""
    blocks = values.reshape(-1, 32)
    scale = (np.abs(blocks).max(1, keepdims=True) / 127).astype(np.float16)
    whole = np.rint(blocks / scale.astype(np.float64)).astype(np.int8)
    stored = np.concatenate([scale.view(np.uint8), whole.view(np.uint8)], 1)
    return stored, (scale.astype(np.float32) * whole.astype(np.float32)).reshape(values.shape)


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

    values = framework.array(np.zeros(19 * 64), "f32")
    ops.dequantize(values, "Q8_0", framework.array(stored, "u8"))
    assert (framework.numpy(values).reshape(19, 64) == plain).all()

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


def test_packed_weight_errors(framework: Framework) -> None:
    stored = framework.array(np.zeros(34), "u8")
    with pytest.raises(ValueError, match='type is "Q9", expected one of F32, F16'):
        heddle.PackedWeight(stored, "Q9", 1, 32)
    with pytest.raises(ValueError, match=r"stored has 34 bytes, expected 68 for Q8_0 \[2, 32\]"):
        heddle.PackedWeight(stored, "Q8_0", 2, 32)
    with pytest.raises(ValueError, match="in_features is 33, expected a multiple of 32 for Q8_0"):
        heddle.PackedWeight(stored, "Q8_0", 1, 33)
    with pytest.raises(ValueError, match="y has 1 arrays, weight has 0"):
        ops.linear(
            [framework.array(np.zeros((1, 1)), "f32")], framework.array(np.zeros((1, 1)), "f32"), []
        )


@pytest.mark.parametrize("ids", INTEGERS)
def test_greedy(framework: Framework, rng: np.random.Generator, ids: str) -> None:
    logits = framework.array(rng.standard_normal((6, 50)), "f32")
    token_ids, logprobs = framework.array(np.full(6, -1), ids), framework.array(np.zeros(6), "f32")
    ops.greedy(token_ids, logprobs, logits)
    plain = framework.numpy(logits)
    assert framework.numpy(token_ids).tolist() == plain.argmax(1).tolist()
    want = plain.max(1) - np.log(np.exp(plain).sum(1))
    assert_close(framework.numpy(logprobs), want, "f32", terms=50)


def test_sample_draws_the_distribution_and_repeats_by_seed(framework: Framework) -> None:
    rows, p = 4000, np.array([0.5, 0.3, 0.15, 0.05])
    logits = framework.array(np.tile(np.log(p), (rows, 1)), "f32")

    def draw(top_k: int) -> Any:
        parameters = [(1.0, "f32"), (top_k, "i32"), (1.0, "f32"), (0.0, "f32")]
        arrays = [framework.array(np.full(rows, v), t) for v, t in parameters]
        ids = framework.array(np.full(rows, -1), "i64")
        seed, step = framework.array(np.arange(rows), "i64"), framework.array(np.zeros(rows), "i64")
        ops.sample(ids, None, logits, *arrays, seed, step)
        return framework.numpy(ids)

    counts = np.bincount(draw(0), minlength=4)
    assert (np.abs(counts - rows * p) < 5 * np.sqrt(rows * p)).all()
    assert set(draw(2)) == {0, 1}
    assert (draw(0) == draw(0)).all()
