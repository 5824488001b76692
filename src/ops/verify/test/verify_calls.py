"""A call of each torch operator of verify, for python/tests/operator_cases.py."""

from __future__ import annotations

import torch
from torch import full, randn, tensor


def _probabilities(rows: int) -> torch.Tensor:
    """Rows of eight that sum to 1."""
    return torch.softmax(randn(rows, 8), -1)


CALLS = {
    "verify_greedy": lambda: (
        [
            full((2, 3), 9),
            full((2,), 9),
            tensor([5, 6, 7]),
            tensor([5, 1, 2, 3, 4]),
            tensor([0, 2, 3]),
        ],
        {},
    ),
    "verify_stochastic": lambda: (
        [full((2, 3), 9), full((2,), 9), tensor([5, 6, 7]), _probabilities(3), _probabilities(5)]
        + [tensor([0, 2, 3]), tensor([1, 2]), tensor([0, 4])],
        {},
    ),
    "verify_tree_greedy": lambda: (
        [
            full((2, 3), 9),
            full((2,), 9),
            full((2, 2), 9),
            tensor([5, 6, 7]),
            tensor([5, 1, 2, 3, 4]),
        ]
        + [tensor([[1], [3], [1]]), tensor([0, 2, 3])],
        {},
    ),
    "verify_tree_stochastic": lambda: (
        [full((2, 3), 9), full((2,), 9), full((2, 2), 9), tensor([5, 6, 7]), None]
        + [
            _probabilities(5),
            tensor([[1], [3], [1]]),
            tensor([0, 2, 3]),
            tensor([1, 2]),
            tensor([0, 4]),
        ],
        {},
    ),
    "tree_kv_moves": lambda: (
        [
            full((2, 2), 9),
            full((2, 2), 9),
            tensor([[0, 1], [0, -1]]),
            tensor([2, 1]),
            tensor([7, 3]),
        ],
        {},
    ),
}
