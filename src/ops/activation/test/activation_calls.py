"""A call of each torch operator of activation, for python/tests/operator_cases.py."""

from torch import randn, zeros

CALLS = {
    "gelu_and_mul": lambda: ([zeros(3, 8), randn(3, 8), randn(3, 8)], {"form": "tanh"}),
    "silu_and_mul": lambda: ([zeros(3, 8), randn(3, 8), randn(3, 8)], {}),
}
