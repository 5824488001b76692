"""Embedding of packed tables that were moved to a GPU."""

from __future__ import annotations

import numpy as np
import pytest
from frameworks import q8_0
from torch_on_gpu import GPU, torch

import heddle
from heddle import ops


def test_a_packed_table_has_the_bits_of_the_cpu(rng: np.random.Generator) -> None:
    stored, plain = q8_0(rng.standard_normal((19, 64)))
    packed = heddle.PackedWeight(stored, "Q8_0", out_features=19, in_features=64)
    there = packed.to(GPU)
    ids = torch.tensor([18, 0, 7])
    for dtype in (torch.float32, torch.bfloat16):
        y, want = torch.zeros(3, 64, dtype=dtype, device=GPU), torch.zeros(3, 64, dtype=dtype)
        ops.embedding(y, ids.to(GPU), there)
        ops.embedding(want, ids, packed)
        assert torch.equal(y.cpu(), want)
    assert (want.float().numpy() == torch.from_numpy(plain[ids]).bfloat16().float().numpy()).all()
    with pytest.raises(ValueError, match="table is on cpu, but the arrays are on cuda:0"):
        ops.embedding(y, ids.to(GPU), packed)
    with pytest.raises(ValueError, match="table is on cuda:0, but the arrays are on cpu"):
        ops.embedding(want, ids, there)
