"""From Python 3.12 on an eager call runs no Python code; while torch traces, it is the operator."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import numpy as np
import pytest
from frameworks import TORCH_WANTED

from heddle import ops


def frames_of(call: Any) -> list[str]:
    """The names of the Python functions that a call runs, its own left out."""
    seen: list[str] = []

    def watch(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            seen.append(frame.f_code.co_name)

    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(None)
    return seen[1:]


def test_an_eager_call_runs_no_python_code() -> None:
    x, weight = np.ones((2, 8), np.float32), np.ones(8, np.float32)
    y = np.zeros_like(x)
    frames = frames_of(lambda: ops.rms_norm(y, x, weight, epsilon=0.0))
    assert (y == 1).all()
    expected = [] if sys.version_info >= (3, 12) else ["call"]
    assert [name for name in frames if name == "call"] == expected


@pytest.mark.skipif(not TORCH_WANTED, reason="skipped: HEDDLE_TEST_TORCH=0")
def test_a_drop_in_that_makes_tensors_is_one_call() -> None:
    import torch

    from heddle.compat.megatron import mtp_utils

    tokens, results = torch.tensor([5, 5]), []
    frames = frames_of(
        lambda: results.extend(mtp_utils.verify_speculative_tokens(tokens, tokens, 1, 0, 1))
    )
    assert results[0].tolist() == [1] and results[2] is tokens
    expected = [] if sys.version_info >= (3, 12) else ["call"]
    assert [name for name in frames if name in ("call", "empty", "empty_like")] == expected


def test_what_does_not_fit_is_told() -> None:
    x = np.ones((2, 8), np.float32)
    with pytest.raises(TypeError, match="incompatible function arguments"):
        ops.rms_norm(x, x)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="incompatible function arguments"):
        ops.rms_norm(x, x, x[0], epsilon="small")  # type: ignore[arg-type]
    assert ops.rms_norm.__name__ == "rms_norm"


@pytest.mark.skipif(not TORCH_WANTED, reason="skipped: HEDDLE_TEST_TORCH=0")
def test_an_exported_program_calls_the_operator() -> None:
    import torch

    import heddle.torch

    assert "rms_norm" in heddle.torch.OPERATORS

    class Norm(torch.nn.Module):
        def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            y = torch.empty_like(x)
            ops.rms_norm(y, x, weight)
            return y + 1

    x, weight = torch.randn(3, 8), torch.randn(8)
    for strict in (False, True):
        program = torch.export.export(Norm(), (x, weight), strict=strict)
        assert "heddle.rms_norm" in str(program.graph)
        assert torch.equal(program.module()(x, weight), Norm()(x, weight))
