"""The drop-in modules on what only torch has: parameters, inference mode, other devices."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from frameworks import TORCH_WANTED

from heddle.compat import punica_kernels
from heddle.compat.lorax import metadata_kernels, ops

pytestmark = pytest.mark.skipif(not TORCH_WANTED, reason="HEDDLE_TEST_TORCH=0")
torch: Any = importlib.import_module("torch") if TORCH_WANTED else None


def test_parameters_are_taken_and_nothing_is_recorded() -> None:
    x = torch.ones(2, 8, requires_grad=True)
    a, b = torch.nn.Parameter(torch.ones(1, 1, 3, 8)), torch.nn.Parameter(torch.ones(1, 8, 3))
    v, y, ids = torch.zeros(2, 3), torch.zeros(2, 8), torch.tensor([0, -1])
    ops.bgmv_shrink(x, a, v, ids)
    ops.bgmv_expand(v, b.transpose(1, 2).contiguous().transpose(1, 2), y.t().contiguous().t(), ids)
    ops.bgmv_expand(v, b, y, ids)
    assert y.tolist() == [[24.0] * 8, [0.0] * 8] and y.grad_fn is None and not y.requires_grad
    hidden = torch.zeros(2, 3, requires_grad=True) * 1.0
    punica_kernels.dispatch_bgmv(hidden, x, torch.tensor([a.data_ptr()]), ids, 0, 1.0)
    turned = torch.zeros(3, 2, requires_grad=True).t()
    punica_kernels.dispatch_bgmv(turned, x, torch.tensor([a.data_ptr()]), ids, 0, 1.0)
    assert hidden.tolist() == turned.tolist() == [[8.0] * 3, [0.0] * 3]


def test_inference_mode() -> None:
    with torch.inference_mode():
        output, x = torch.empty(2, 4), torch.full((2, 4), 3.0)
        punica_kernels.rms_norm(output, x, torch.ones(4), 0.0)
        assert output.tolist() == [[1.0] * 4] * 2


def test_results_are_on_the_device_of_the_tables() -> None:
    tables, lengths = torch.tensor([[1, 2]]), torch.tensor([2])
    ragged = metadata_kernels.block_tables_to_ragged(
        block_tables=tables,
        input_lengths=lengths,
        cache_lengths=[0],
        input_lengths_tensor=lengths,
        cache_lengths_tensor=lengths - lengths,
        max_current_length=2,
    )
    assert ragged.device == tables.device and ragged.dtype == torch.int32
    assert ragged.tolist() == [1, 2]


def test_tensors_for_lists_are_not_iterated_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU each element would be a copy to the host."""
    lengths = torch.tensor([1, 2])

    def iterate(_: object) -> None:
        pytest.fail("an iteration over a tensor")

    monkeypatch.setattr(torch.Tensor, "__iter__", iterate)
    ragged = metadata_kernels.block_tables_to_ragged(
        block_tables=torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]], dtype=torch.int32),
        input_lengths=lengths,
        cache_lengths=lengths,
        input_lengths_tensor=lengths,
        cache_lengths_tensor=lengths,
        max_current_length=4,
    )
    assert ragged.tolist() == [1, 2, 5, 6, 7, 8]


def test_tensors_elsewhere_are_refused() -> None:
    y, x, elsewhere = torch.zeros(2, 3), torch.ones(2, 8), torch.tensor([0, 0], device="meta")
    with pytest.raises(RuntimeError):
        punica_kernels.dispatch_bgmv(y, x, torch.tensor([0]), elsewhere, 0, 1.0)
    with pytest.raises(ValueError):
        ops.bgmv_shrink(x, torch.ones(1, 3, 8), y, elsewhere)
