"""A call of each torch operator of attention, for python/tests/operator_cases.py."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import randn, tensor, zeros

from heddle import AttentionOptions, PagedKv, PageTable


def _page_table() -> PageTable:
    """Two sequences of 6 and 3 tokens in pages of 4."""
    return PageTable(tensor([0, 2, 3]), tensor([2, 0, 1], dtype=torch.int32), tensor([2, 3]))


def _cache(fill: Callable[..., torch.Tensor]) -> PagedKv:
    """Three pages of 4 tokens, 2 heads of 8 elements."""
    return PagedKv.from_pool(fill(3, 2, 4, 8), fill(3, 2, 4, 8))


CALLS = {
    "kv_init": lambda: (
        [_cache(zeros), _page_table(), randn(5, 2, 8), randn(5, 2, 8), tensor([0, 3, 5])],
        {},
    ),
    "kv_append": lambda: (
        [_cache(zeros), _page_table(), randn(2, 2, 8), randn(2, 2, 8)],
        {},
    ),
    "rope_kv_append": lambda: (
        [
            randn(5, 4, 8),
            _cache(zeros),
            _page_table(),
            randn(5, 2, 8),
            randn(5, 2, 8),
            tensor([0, 3, 5]),
        ],
        {"theta": 5e5},
    ),
    "batch_prefill": lambda: (
        [
            zeros(5, 4, 8),
            zeros(5, 4),
            randn(5, 4, 8),
            tensor([0, 3, 5]),
            _cache(randn),
            _page_table(),
            AttentionOptions(
                rope_theta=1e4,
                window_left=3,
                tree_mask=tensor([1, 3, 5], dtype=torch.int32),
                tree_mask_indptr=tensor([0, 3, 3]),
            ),
        ],
        {},
    ),
    "batch_decode": lambda: (
        [zeros(2, 4, 8), None, randn(2, 4, 8), _cache(randn), _page_table()],
        {"options": AttentionOptions(sm_scale=0.5)},
    ),
    "merge_states": lambda: (
        [zeros(3, 2, 8), zeros(3, 2), randn(3, 2, 8), randn(3, 2), randn(3, 2, 8), randn(3, 2)],
        {},
    ),
}
