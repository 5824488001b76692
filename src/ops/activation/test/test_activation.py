"""The gated activations."""

from __future__ import annotations

import numpy as np
import pytest
from frameworks import FLOATS, Framework, assert_close

from heddle import ops


@pytest.mark.parametrize("dtype", FLOATS)
def test_silu_and_mul(framework: Framework, rng: np.random.Generator, dtype: str) -> None:
    both = framework.array(rng.standard_normal((5, 26)), dtype)
    y = framework.array(np.full((5, 13), np.nan), dtype)
    ops.silu_and_mul(y, both[:, :13], both[:, 13:])
    gate, up = np.split(framework.numpy(both), 2, axis=1)
    assert_close(framework.numpy(y), gate / (1 + np.exp(-gate)) * up, dtype, terms=4)
