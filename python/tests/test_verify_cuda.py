"""Verification of drafts on torch's CUDA tensors: the tests of test_verify.py."""

from __future__ import annotations

from typing import Any

import pytest
from frameworks import TORCH_WANTED

if not TORCH_WANTED:
    pytest.skip("skipped: HEDDLE_TEST_TORCH=0", allow_module_level=True)

import torch
from frameworks import TorchFramework
from test_verify import (
    test_a_request_alone_draws_the_same,
    test_an_empty_batch,
    test_greedy,
    test_the_first_token_is_distributed_as_the_target,
)

import heddle

if not (heddle.has_cuda() and torch.cuda.is_available()):
    pytest.skip("skipped: no CUDA device", allow_module_level=True)

__all__ = [
    "test_a_request_alone_draws_the_same",
    "test_an_empty_batch",
    "test_greedy",
    "test_the_first_token_is_distributed_as_the_target",
]


class TorchOnGpu(TorchFramework):
    """Torch on the first GPU."""

    def array(self, values: Any, dtype: str) -> Any:
        """See Framework."""
        return super().array(values, dtype).to("cuda:0")

    def numpy(self, array: Any) -> Any:
        """See Framework."""
        return super().numpy(array.cpu())


@pytest.fixture
def framework() -> TorchOnGpu:
    """In place of the frameworks of the CPU."""
    return TorchOnGpu()
