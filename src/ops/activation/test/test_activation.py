"""The gated activations."""

from __future__ import annotations

import math

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


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("form", ["erf", "tanh"])
def test_gelu_and_mul(
    framework: Framework, rng: np.random.Generator, dtype: str, form: str
) -> None:
    both = framework.array(rng.standard_normal((5, 26)), dtype)
    y = framework.array(np.full((5, 13), np.nan), dtype)
    ops.gelu_and_mul(y, both[:, :13], both[:, 13:], form=form)
    gate, up = np.split(framework.numpy(both), 2, axis=1)
    if form == "erf":
        half = (1 + np.vectorize(math.erf)(gate / math.sqrt(2))) / 2
    else:
        half = (1 + np.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3))) / 2
    assert_close(framework.numpy(y), gate * half * up, dtype, terms=12)


def test_gelu_names_a_form_that_it_does_not_know(framework: Framework) -> None:
    x = framework.array(np.zeros((2, 3)), "f32")
    with pytest.raises(ValueError, match='form is "none", expected "erf" or "tanh"'):
        ops.gelu_and_mul(x, x, x, form="none")
