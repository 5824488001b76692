"""Pages by address on torch's CUDA tensors."""

from __future__ import annotations

from test_attention import test_pages_by_address_have_the_bits_of_a_pool
from torch_on_gpu import framework

__all__ = ["framework", "test_pages_by_address_have_the_bits_of_a_pool"]
