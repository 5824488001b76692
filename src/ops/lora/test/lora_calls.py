"""A call of each torch operator of lora, for python/tests/operator_cases.py."""

from torch import randn, tensor, zeros

from heddle import LoraBatch

CALLS = {
    "lora_shrink": lambda: (
        [zeros(3, 4), randn(3, 8), randn(2, 4, 8), LoraBatch(slot_ids=tensor([1, -1, 0]))],
        {"scale": 0.5},
    ),
    "lora_expand": lambda: (
        [zeros(3, 9), randn(3, 4), randn(2, 8, 4), LoraBatch(slot_ids=tensor([1, -1, 0]))],
        {"slice_offset": 1},
    ),
}
