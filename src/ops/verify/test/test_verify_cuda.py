"""Verification of drafts on torch's CUDA tensors: the tests of test_verify.py."""

from __future__ import annotations

from test_verify import (
    test_a_request_alone_draws_the_same,
    test_an_empty_batch,
    test_greedy,
    test_the_first_token_is_distributed_as_the_target,
)
from torch_on_gpu import framework

__all__ = [
    "framework",
    "test_a_request_alone_draws_the_same",
    "test_an_empty_batch",
    "test_greedy",
    "test_the_first_token_is_distributed_as_the_target",
]
