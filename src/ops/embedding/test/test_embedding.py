"""heddle.ops.embedding."""

from __future__ import annotations

import numpy as np
import pytest
from frameworks import FLOATS, Framework

from heddle import ops


@pytest.mark.parametrize("dtype", FLOATS)
def test_embedding(framework: Framework, rng: np.random.Generator, dtype: str) -> None:
    table = framework.array(rng.standard_normal((7, 5)), dtype)
    y = framework.array(np.full((4, 5), np.nan), "f32")
    ops.embedding(y, framework.array([6, -1, 0, 7], "i64"), table)
    want = np.zeros((4, 5))
    want[[0, 2]] = framework.numpy(table)[[6, 0]]
    assert (framework.numpy(y) == want).all()
