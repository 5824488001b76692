"""A call of each torch operator of rope, for python/tests/operator_cases.py."""

from torch import randn, tensor, zeros

CALLS = {
    "rope_table": lambda: (
        [zeros(3, 4), zeros(3, 4), tensor([0, 5, 9])],
        {"llama3_scaling": [8.0, 1.0, 4.0, 8192.0]},
    ),
    "rope": lambda: ([randn(3, 2, 8)], {"positions": tensor([1, 5, 9]), "theta": 5e5}),
}
