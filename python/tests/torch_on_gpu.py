"""What the tests on torch's CUDA tensors share.

A test module that imports this is left out where there is no CUDA device, or torch is not wanted; so
torch comes from here, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from frameworks import TORCH_WANTED, TorchFramework

if not TORCH_WANTED:
    pytest.skip("skipped: HEDDLE_TEST_TORCH=0", allow_module_level=True)

import torch

import heddle

if not (heddle.has_cuda() and torch.cuda.is_available()):
    pytest.skip("skipped: no CUDA device", allow_module_level=True)

__all__ = ["GPU", "HALVES", "TorchOnGpu", "each_half", "framework", "seed_of_torch", "torch"]

GPU = torch.device("cuda", 0)
HALVES = [torch.float16, torch.bfloat16]

each_half = pytest.mark.parametrize("dtype", HALVES)


@pytest.fixture(autouse=True)
def seed_of_torch(rng: np.random.Generator) -> None:
    """Torch's random data repeat with HEDDLE_TEST_SEED, too."""
    torch.manual_seed(int(rng.integers(2**31)))


class TorchOnGpu(TorchFramework):
    """Torch on the first GPU."""

    def array(self, values: Any, dtype: str) -> Any:
        """See Framework."""
        return super().array(values, dtype).to(GPU)

    def numpy(self, array: Any) -> Any:
        """See Framework."""
        return super().numpy(array.cpu())


@pytest.fixture
def framework() -> TorchOnGpu:
    """In place of the frameworks of the CPU."""
    return TorchOnGpu()
