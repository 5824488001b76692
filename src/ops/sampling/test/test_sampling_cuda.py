"""Sampling on torch's CUDA tensors."""

from __future__ import annotations

from test_sampling import test_greedy, test_sample_draws_the_distribution_and_repeats_by_seed
from torch_on_gpu import framework

__all__ = [
    "framework",
    "test_greedy",
    "test_sample_draws_the_distribution_and_repeats_by_seed",
]
