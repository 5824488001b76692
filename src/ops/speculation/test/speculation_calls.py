"""A call of each torch operator of speculation, for python/tests/operator_cases.py."""

from __future__ import annotations

import torch
from torch import full, tensor, zeros


def _drafted() -> list[torch.Tensor]:
    """Tokens, in and out, of a request with two drafts, the first one right, and one without."""
    return [tensor([1, 7, 3, 9]), tensor([7, 5, 6, 2])]


def _kv_blocks(requests: int) -> list[torch.Tensor]:
    """Requests of five tokens in three blocks of two: offset, length, count, last id, ids."""
    one = [tensor([0]), tensor([5]), tensor([3]), tensor([3]), tensor([[4, 9, 3, -1]])]
    return [torch.cat([t] * requests) for t in one]


CALLS = {
    "verify_speculative_tokens": lambda: (
        [zeros(2, dtype=torch.int64), zeros(4, dtype=torch.bool), *_drafted(), tensor([1]), 1, 2],
        {},
    ),
    "prepare_next_forward_pass": lambda: (
        [
            *(zeros(2, dtype=torch.int64) for _ in range(2)),
            zeros(2, 2, dtype=torch.int64),
            zeros(2, dtype=torch.int64),
            _drafted()[1],
            tensor([10, 11, 12, 13]),
            tensor([1, 3]),
            tensor([True, True, False, True]),
            _drafted()[0],
            1,
            2,
        ],
        {},
    ),
    "rewind_kv_cache": lambda: (
        [zeros(1, dtype=torch.int64), None, *_kv_blocks(1), tensor([1]), tensor([0]), 3, 2],
        {"released_ids": zeros(2, dtype=torch.int64), "num_active": tensor([1])},
    ),
    "speculative_step": lambda: (
        [*_kv_blocks(2), *_drafted(), 1, 1, 2, 2],
        {
            "sampled_tokens": zeros(2, dtype=torch.int64),
            "next_slots": zeros(2, 1, dtype=torch.int64),
        },
    ),
    "propose_ngram_drafts": lambda: (
        [full((1, 2), 9), full((1,), 9), tensor([[7, 8, 1, 7, 8]]), tensor([5]), 2],
        {"match": "last", "num_active": tensor([1])},
    ),
}
