"""One call of every operation that is a torch operator: its arguments, as torch tensors on the CPU.

The calls are small, valid and change at least one output; test_torch_operators.py runs each
eagerly, compiled, and through torch.library.opcheck.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import full, randn, tensor, zeros

Call = tuple[list[Any], dict[str, Any]]
CUDA_ALONE = {"lora_plan"}
"""Operations of arrays on a GPU alone; test_lora_cuda.py has their calls."""
WITHOUT_CUDA_KERNELS = {"dequantize", "embedding", "greedy", "sample", "silu_and_mul"}
"""Operations that run on the CPU alone."""
CASES: dict[str, Callable[[], Call]] = {
    "silu_and_mul": lambda: ([zeros(3, 8), randn(3, 8), randn(3, 8)], {}),
    "rms_norm": lambda: ([zeros(3, 8), randn(3, 8), randn(8)], {"epsilon": 1e-5}),
    "fused_add_rms_norm": lambda: (
        [zeros(3, 8), randn(3, 8), randn(3, 8), randn(8)],
        {"weight_offset": 1},
    ),
    "rope_table": lambda: (
        [zeros(3, 4), zeros(3, 4), tensor([0, 5, 9])],
        {"llama3_scaling": [8.0, 1.0, 4.0, 8192.0]},
    ),
    "rope": lambda: ([randn(3, 2, 8)], {"positions": tensor([1, 5, 9]), "theta": 5e5}),
    "embedding": lambda: ([zeros(3, 8), tensor([1, 0, 4]), randn(5, 8)], {}),
    "dequantize": lambda: ([zeros(4), "F32", randn(4).view(torch.uint8)], {}),
    "lora_shrink": lambda: (
        [zeros(3, 4), randn(3, 8), randn(2, 4, 8)],
        {"slot_ids": tensor([1, -1, 0]), "scale": 0.5},
    ),
    "lora_expand": lambda: (
        [zeros(3, 9), randn(3, 4), randn(2, 8, 4)],
        {"slot_ids": tensor([1, -1, 0]), "slice_offset": 1},
    ),
    "kv_init": lambda: (
        [
            zeros(3, 2, 4, 8),
            zeros(3, 2, 4, 8),
            *_page_table(),
            randn(5, 2, 8),
            randn(5, 2, 8),
            tensor([0, 3, 5]),
        ],
        {},
    ),
    "kv_append": lambda: (
        [zeros(3, 2, 4, 8), zeros(3, 2, 4, 8), *_page_table(), randn(2, 2, 8), randn(2, 2, 8)],
        {},
    ),
    "rope_kv_append": lambda: (
        [
            randn(5, 4, 8),
            zeros(3, 2, 4, 8),
            zeros(3, 2, 4, 8),
            *_page_table(),
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
            randn(3, 2, 4, 8),
            randn(3, 2, 4, 8),
            *_page_table(),
        ],
        {
            "rope_theta": 1e4,
            "window_left": 3,
            "tree_mask": tensor([1, 3, 5], dtype=torch.int32),
            "tree_mask_indptr": tensor([0, 3, 3]),
        },
    ),
    "batch_decode": lambda: (
        [
            zeros(2, 4, 8),
            None,
            randn(2, 4, 8),
            randn(3, 2, 4, 8),
            randn(3, 2, 4, 8),
            *_page_table(),
        ],
        {"sm_scale": 0.5},
    ),
    "merge_states": lambda: (
        [zeros(3, 2, 8), zeros(3, 2), randn(3, 2, 8), randn(3, 2), randn(3, 2, 8), randn(3, 2)],
        {},
    ),
    "mamba_state_selective_copy": lambda: (
        [
            [zeros(2, 3, 4), zeros(2, 3, 5)],
            [randn(2, 3, 3, 4), randn(2, 3, 3, 5)],
            tensor([0, 1]),
            tensor([2, 0]),
            tensor([1, 0]),
            2,
        ],
        {"num_active": 2},
    ),
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
    "block_tables_to_ragged": lambda: (
        [full((7,), 9), tensor([[1, 2, 3], [4, 5, 6]]), tensor([1, 2]), tensor([1, 1])],
        {"fill_value": 0, "total": 5},
    ),
    "block_tables_to_padded": lambda: (
        [full((2, 3), 9), tensor([1, 2, 3, 4]), tensor([0, 1, 4], dtype=torch.int32)],
        {"fill_value": 0},
    ),
    "copy_next_input_ids_inplace": lambda: (
        [
            full((2, 6), 9),
            tensor([1, 2, 3]),
            tensor([0, 2, 3]),
            tensor([1, 2]),
            tensor([1, 1]),
            tensor([2, 2]),
        ],
        {},
    ),
    "prepare_position_slot_ids": lambda: (
        [full((3,), 9), full((3,), 9), tensor([4, 6]), tensor([0, 1, 3]), tensor([0, 8])],
        {},
    ),
    "slots_filtering": lambda: (
        [full((3,), 9), tensor([1, 2, 3, 4, 5]), tensor([0, 1, 3]), tensor([0, 3])],
        {},
    ),
    "prepare_batch": lambda: (
        [],
        {
            "q_indptr": full((3,), 9),
            "positions": full((4,), 9),
            "slot_ids": full((4,), 9),
            "cache_lengths": tensor([3, 5]),
            "input_lengths": tensor([1, 2]),
            "adapter_slots": tensor([1, -1]),
        },
    ),
}


def _probabilities(rows: int) -> torch.Tensor:
    """Rows of eight that sum to 1."""
    return torch.softmax(randn(rows, 8), -1)


def _page_table() -> list[torch.Tensor]:
    """Two sequences of 6 and 3 tokens in pages of 4."""
    return [tensor([0, 2, 3]), tensor([2, 0, 1], dtype=torch.int32), tensor([2, 3])]


def _drafted() -> list[torch.Tensor]:
    """Tokens, in and out, of a request with two drafts, the first one right, and one without."""
    return [tensor([1, 7, 3, 9]), tensor([7, 5, 6, 2])]


def _kv_blocks(requests: int) -> list[torch.Tensor]:
    """Requests of five tokens in three blocks of two: offset, length, count, last id, ids."""
    one = [tensor([0]), tensor([5]), tensor([3]), tensor([3]), tensor([[4, 9, 3, -1]])]
    return [torch.cat([t] * requests) for t in one]
