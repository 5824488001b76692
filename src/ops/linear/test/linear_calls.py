"""A call of each torch operator of linear, for python/tests/operator_cases.py."""

import torch
from torch import randn, zeros

CALLS = {
    "dequantize": lambda: ([zeros(4), "F32", randn(4).view(torch.uint8)], {}),
}
