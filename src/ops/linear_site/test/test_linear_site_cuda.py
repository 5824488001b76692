"""linear_site on torch's CUDA tensors, with packed weights that were moved there."""

from __future__ import annotations

import numpy as np
import pytest
from frameworks import q8_0
from test_linear_site import test_linear_site, test_packed_weights_beside_dense_ones
from torch_on_gpu import GPU, framework, torch

import heddle
from heddle import ops

__all__ = ["framework", "test_linear_site", "test_packed_weights_beside_dense_ones"]

OUT, WIDTH = 40, 64


def packed_weight(rng: np.random.Generator) -> heddle.PackedWeight:
    return heddle.PackedWeight(q8_0(rng.standard_normal((OUT, WIDTH)))[0], "Q8_0", OUT, WIDTH)


def test_a_packed_weight_comes_back_from_a_gpu(rng: np.random.Generator) -> None:
    packed = packed_weight(rng)
    there = packed.to(GPU)
    assert (there.device, there.type, there.nbytes) == ("cuda:0", "Q8_0", packed.nbytes)
    back = there.to("cuda:0").to("cpu")
    x = rng.standard_normal((3, WIDTH)).astype(np.float32)
    y, want = np.full((3, OUT), np.nan, np.float32), np.empty((3, OUT), np.float32)
    ops.linear(y, x, back)
    ops.linear(want, x, packed)
    assert (y == want).all()


def test_a_graph_of_a_packed_weight(rng: np.random.Generator) -> None:
    packed = packed_weight(rng).to(GPU)
    x = torch.randn(3, WIDTH, device=GPU).bfloat16()
    y, want = torch.zeros(3, OUT, device=GPU), torch.zeros(3, OUT, device=GPU)
    ops.linear_site([y], x, [packed])  # makes the context before the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        ops.linear_site([y], x, [packed])
    x.copy_(torch.randn(3, WIDTH, device=GPU))
    graph.replay()
    ops.linear_site([want], x, [packed])
    assert torch.equal(y, want) and bool(want.any())


def test_weights_and_arrays_lie_on_one_device(rng: np.random.Generator) -> None:
    packed = packed_weight(rng)
    there = packed.to(GPU)
    x, y = torch.ones(1, WIDTH), torch.ones(1, OUT)
    on_gpu = r"weight(\[0\])? is on cuda:0, but the arrays are on cpu"
    with pytest.raises(ValueError, match=on_gpu):
        ops.linear(y, x, there)
    with pytest.raises(ValueError, match=on_gpu):
        ops.linear([y], x, [there])
    with pytest.raises(ValueError, match=on_gpu):
        ops.linear_site([y], x.bfloat16(), [there])
    x, y = x.to(GPU), y.to(GPU)
    with pytest.raises(ValueError, match=r"weight\[0\] is on cpu, but the arrays are on cuda:0"):
        ops.linear_site([y], x.bfloat16(), [packed])
    with pytest.raises(NotImplementedError, match="linear: no implementation for cuda:0"):
        ops.linear(y, x, there)
