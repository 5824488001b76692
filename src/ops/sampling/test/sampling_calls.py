"""A call of each torch operator of sampling, for python/tests/operator_cases.py."""

import torch
from torch import full, randn, tensor, zeros

CALLS = {
    "sample": lambda: (
        [
            full((3,), -1),
            zeros(3),
            randn(3, 20),
            tensor([0.0, 1.0, 0.7]),
            tensor([0, 5, 0], dtype=torch.int32),
            tensor([1.0, 0.9, 1.0]),
            zeros(3),
            tensor([1, 2, 3]),
            tensor([0, 1, 2]),
        ],
        {},
    ),
    "greedy": lambda: ([full((3,), -1), None, randn(3, 20)], {}),
}
