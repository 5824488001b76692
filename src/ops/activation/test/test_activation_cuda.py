"""The gated activations on torch's CUDA tensors."""

from __future__ import annotations

from test_activation import test_gelu_and_mul, test_silu_and_mul
from torch_on_gpu import framework

__all__ = ["framework", "test_gelu_and_mul", "test_silu_and_mul"]
