"""Outputs of f8e4m3 on torch's CUDA tensors."""

from __future__ import annotations

from torch_on_gpu import GPU, seed_of_torch, torch

from heddle import ops

__all__ = ["seed_of_torch"]


def test_float8_is_the_rounding_of_the_f32_value() -> None:
    x, weight = torch.randn(7, 1000, device=GPU), torch.randn(1000, device=GPU)
    value, y = torch.empty_like(x), torch.empty_like(x, dtype=torch.float8_e4m3fn)
    scales = torch.empty(7, device=GPU)
    ops.rms_norm(value, x, weight)
    ops.rms_norm(y, x, weight, row_scales=scales)
    largest = value.abs().amax(-1)
    assert torch.equal(scales, largest / torch.full_like(largest, 448))  # a scalar: by its inverse
    want = (value * (1 / scales)[:, None]).clamp(-448, 448).to(torch.float8_e4m3fn)
    assert torch.equal(y.view(torch.uint8), want.view(torch.uint8))
    fixed = torch.tensor(0.02, device=GPU)
    ops.rms_norm(y, x, weight, output_scale=fixed)
    want = (value * (1 / fixed)).clamp(-448, 448).to(torch.float8_e4m3fn)
    assert torch.equal(y.view(torch.uint8), want.view(torch.uint8))
