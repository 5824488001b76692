"""heddle.ops.sample and greedy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from frameworks import INTEGERS, Framework, assert_close

from heddle import ops


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
