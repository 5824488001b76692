"""A call of each torch operator of embedding, for python/tests/operator_cases.py."""

from torch import randn, tensor, zeros

CALLS = {
    "embedding": lambda: ([zeros(3, 8), tensor([1, 0, 4]), randn(5, 8)], {}),
}
