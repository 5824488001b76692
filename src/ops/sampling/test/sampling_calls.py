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
    "adjust_logits": lambda: (
        [
            randn(3, 20),
            zeros(3),
            tensor([0, 2, 2, 3], dtype=torch.int32),
            tensor([1, 5, 19], dtype=torch.int32),
            tensor([0, 1, 2], dtype=torch.int32),
            tensor([3, 0, 1], dtype=torch.int32),
            tensor([0.5, -1.0, 2.0]),
            tensor([1.5, 1.0, 0.8]),
            full((3,), 0.5),
            full((3,), 0.25),
        ],
        {},
    ),
    "restore_logits": lambda: (
        [
            randn(2, 20),
            tensor([1.0, 2.0]),
            tensor([0, 1, 2], dtype=torch.int32),
            tensor([3, 4], dtype=torch.int32),
        ],
        {},
    ),
    "token_logprobs": lambda: (
        [
            zeros(3),
            full((3, 2), -1, dtype=torch.int32),
            zeros(3, 2),
            randn(3, 20),
            tensor([1, 19, 0]),
        ],
        {},
    ),
    "greedy": lambda: ([full((3,), -1), None, randn(3, 20)], {}),
}
