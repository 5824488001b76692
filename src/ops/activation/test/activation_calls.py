"""A call of each torch operator of activation, for python/tests/operator_cases.py."""

from torch import randn, zeros

CALLS = {
    "silu_and_mul": lambda: ([zeros(3, 8), randn(3, 8), randn(3, 8)], {}),
}
