"""Norms and copies of Mamba states on torch's CUDA tensors, and their drop-ins."""

from __future__ import annotations

import pytest
from torch_on_gpu import GPU, seed_of_torch, torch

from heddle import ops
from heddle.compat import punica_kernels
from heddle.compat.megatron import mtp_utils

__all__ = ["seed_of_torch"]


def reference(x: torch.Tensor, weight: torch.Tensor, weight_offset: int = 0) -> torch.Tensor:
    """The formula, in double."""
    x = x.double()
    rms = (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    return x / rms * (weight_offset + weight.double())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("width", [64, 100, 4096, 40000])
def test_rows_of_strided_tensors_and_a_residual(dtype: torch.dtype, width: int) -> None:
    x = torch.randn(5, 3, width + 8, device=GPU).to(dtype)[..., :width]
    residual = torch.randn(5, 3, width, device=GPU).to(dtype)
    weight = torch.randn(width, device=GPU).to(dtype)
    total = (residual.float() + x.float()).to(dtype)
    y = torch.full_like(residual, torch.nan)
    ops.fused_add_rms_norm(y, residual, x, weight, weight_offset=1)
    assert torch.equal(residual, total)
    torch.testing.assert_close(y, reference(total, weight, 1).to(dtype))
    ops.rms_norm(y, x, weight)
    torch.testing.assert_close(y, reference(x, weight).to(dtype))


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


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_punica(dtype: torch.dtype) -> None:
    x, weight = (torch.randn(*shape, device=GPU).to(dtype) for shape in ((9, 4096), (4096,)))
    y = torch.full_like(x, torch.nan)
    punica_kernels.rms_norm(y, x, weight, 1e-6)
    torch.testing.assert_close(y, reference(x, weight).to(dtype))
    with_gaps = torch.full((9, 8192), 7.0, device=GPU, dtype=dtype)
    punica_kernels.rms_norm(with_gaps[:, ::2], x, weight, 1e-6)
    assert torch.equal(with_gaps[:, ::2], y)
    assert (with_gaps[:, 1::2] == 7).all()
    punica_kernels.rms_norm(x, x, weight, 1e-6)
    assert torch.equal(x, y)


def test_megatron() -> None:
    states = torch.randn(3, 4, 5, 7, 2, device=GPU).to(torch.bfloat16)
    current = torch.zeros(3, 4, 7, 2, device=GPU, dtype=torch.bfloat16)
    prefill, slots, accepted = (
        torch.tensor(v, dtype=torch.int32, device=GPU) for v in ([0, 1, 0], [2, 0, -1], [9, 1, 1])
    )
    mtp_utils.mamba_state_selective_copy(states, current, prefill, slots, accepted, 2)
    want = torch.zeros_like(current)
    want[:2, 2] = states[:2, 2, 4]  # a count of 9 is clamped
    assert torch.equal(current, want)


def test_validation_names_row_and_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEDDLE_VALIDATE", "1")
    states, current = torch.zeros(1, 2, 3, 4, device=GPU), torch.zeros(1, 2, 4, device=GPU)
    prefill, accepted = (torch.zeros(2, dtype=torch.int32, device=GPU) for _ in range(2))
    slots = torch.tensor([1, 7], device=GPU)
    with pytest.raises(ValueError, match=r"state_idx\[1\] is 7, expected below num_slots = 2"):
        ops.mamba_state_selective_copy([current], [states], prefill, slots, accepted, 1)


def test_a_graph_replays_with_other_mamba_slots() -> None:
    conv, scan = torch.zeros(2, 4, 6, device=GPU), torch.zeros(2, 4, 3, 5, device=GPU)
    conv_from = torch.randn(2, 4, 3, 6, device=GPU)
    scan_from = torch.randn(2, 4, 3, 3, 5, device=GPU)
    prefill = torch.zeros(2, dtype=torch.int32, device=GPU)
    slots, accepted = torch.tensor([1, 0], device=GPU), torch.tensor([2, 1], device=GPU)

    def copy() -> None:
        ops.mamba_state_selective_copy(
            [conv, scan], [conv_from, scan_from], prefill, slots, accepted, 2
        )

    copy()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        copy()
    slots.copy_(torch.tensor([3, -1]))
    accepted.copy_(torch.tensor([0, 1]))
    conv.zero_()
    graph.replay()
    assert torch.equal(conv[:, 3], conv_from[:, 3, 0])
    assert torch.equal(scan[:, 3], scan_from[:, 3, 0])
    assert not conv[:, :3].any()
    assert torch.equal(scan[:, 1], scan_from[:, 1, 2])  # of the first call
