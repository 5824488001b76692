"""heddle.ops.mamba_state_selective_copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from frameworks import FLOATS, INTEGERS, Framework

from heddle import ops

LAYERS, SLOTS, TOKENS = 3, 6, 4


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("ids", INTEGERS)
def test_mamba_state_selective_copy(
    framework: Framework, rng: np.random.Generator, dtype: str, ids: str
) -> None:
    shapes = [(5, 3), (7,)]
    current = [framework.array(rng.normal(size=(LAYERS, SLOTS, *s)), dtype) for s in shapes]
    drafted = [framework.array(rng.normal(size=(LAYERS, SLOTS, TOKENS, *s)), dtype) for s in shapes]
    prefill, slots, accepted = [0, 1, 0, 0, 2], [4, 1, -1, 0, 5], [3, 2, 1, 0, 9]
    want = [framework.numpy(x).copy() for x in current]
    for state, source in zip(want, drafted, strict=True):
        for slot, token in [(4, 3), (0, 0), (5, 3)]:
            state[:2, slot] = framework.numpy(source)[:2, slot, token]
    indices = (
        framework.array(prefill, "i32"),
        framework.array(slots, ids),
        framework.array(accepted, "i64"),
    )
    ops.mamba_state_selective_copy(current, drafted, *indices, 2)
    for state, expected in zip(current, want, strict=True):
        assert (framework.numpy(state) == expected).all()


@pytest.mark.parametrize("on_device", [False, True])
def test_padding_is_left_alone(framework: Framework, on_device: bool) -> None:
    current = framework.array(np.zeros((1, 2, 3)), "f32")
    drafted = framework.array(np.ones((1, 2, 1, 3)), "f32")
    nothing, slots = framework.array([0, 0], "i32"), framework.array([0, 1], "i32")
    active: Any = framework.array([1], "i64") if on_device else 1
    ops.mamba_state_selective_copy(
        [current], [drafted], nothing, slots, nothing, 1, num_active=active
    )
    assert framework.numpy(current).tolist() == [[[1] * 3, [0] * 3]]


def test_errors(framework: Framework) -> None:
    current = framework.array(np.zeros((1, 2, 3)), "f32")
    drafted = framework.array(np.ones((1, 2, 1, 3)), "f16")
    none = framework.array([0], "i32")
    with pytest.raises(ValueError, match=r"intermediate_states\[0\] is f16, expected f32"):
        ops.mamba_state_selective_copy([current], [drafted], none, none, none, 1)
    with pytest.raises(ValueError, match="intermediate_states has 2 entries, expected 1"):
        ops.mamba_state_selective_copy([current], [drafted, drafted], none, none, none, 1)
