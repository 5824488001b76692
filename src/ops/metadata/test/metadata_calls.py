"""A call of each torch operator of metadata, for python/tests/operator_cases.py."""

import torch
from torch import full, tensor

CALLS = {
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
