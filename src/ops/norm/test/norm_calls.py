"""A call of each torch operator of norm, for python/tests/operator_cases.py."""

from torch import randn, zeros

CALLS = {
    "rms_norm": lambda: ([zeros(3, 8), randn(3, 8), randn(8)], {"epsilon": 1e-5}),
    "fused_add_rms_norm": lambda: (
        [zeros(3, 8), randn(3, 8), randn(3, 8), randn(8)],
        {"weight_offset": 1},
    ),
}
