"""A call of each torch operator of mamba, for python/tests/operator_cases.py."""

from torch import randn, tensor, zeros

CALLS = {
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
}
