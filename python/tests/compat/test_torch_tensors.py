"""The drop-in modules on what only torch has: parameters, inference mode, other devices."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from frameworks import TORCH_WANTED

from heddle.compat import punica_kernels
from heddle.compat.lorax import metadata_kernels, ops
from heddle.compat.megatron import mtp_utils

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


def calls_with_output(output: Any) -> dict[str, Any]:
    """Calls of drop-ins that write to an output [3, 4] of f32."""
    x, ids = torch.ones(3, 2), torch.tensor([0, 0, 0])
    weights, none = torch.ones(1, 1, 4, 2), torch.zeros(4, dtype=torch.int64)
    addresses = torch.tensor([weights.data_ptr()])
    return {
        "rms_norm": lambda: punica_kernels.rms_norm(output, torch.ones(3, 4), torch.ones(4), 1.0),
        "dispatch_bgmv": lambda: punica_kernels.dispatch_bgmv(output, x, addresses, ids, 0, 1.0),
        "bgmv_expand": lambda: ops.bgmv_expand(x, weights, output, ids),
        "bgmv_shrink": lambda: ops.bgmv_shrink(x, weights, output, ids),
        "mamba": lambda: mtp_utils.mamba_state_selective_copy(
            torch.ones(3, 4, 1), output, none, torch.arange(4), none, 3
        ),
    }


def refused_outputs() -> dict[str, Any]:
    """Outputs [3, 4], and what is said of each."""
    leaf_with_gaps = torch.zeros(3, 8)[:, ::2].requires_grad_()
    assert leaf_with_gaps.is_leaf and leaf_with_gaps.stride() == (8, 2)
    return {
        "overlap": torch.zeros(1, 4).expand(3, 4),
        "overlap in": torch.zeros(3, 1).expand(3, 4),
        "elements that overlap": torch.zeros(99).as_strided((3, 4), (3, 1)),
        "overlap in memory": torch.zeros(99).as_strided((3, 4), (4, 2)),
        "leaf": torch.zeros(3, 4, requires_grad=True),
        "a leaf": torch.nn.Parameter(torch.zeros(3, 4)),
        "leaf that requires grad": leaf_with_gaps,
    }


@pytest.mark.parametrize("name", calls_with_output(None) if TORCH_WANTED else [])
def test_outputs_that_overlap_or_are_trained_are_refused(name: str) -> None:
    for said, output in refused_outputs().items():
        before = output.detach().clone()
        with pytest.raises((ValueError, RuntimeError), match=said):
            calls_with_output(output)[name]()
        assert torch.equal(output, before)
        right = torch.zeros(3, 4)
        calls_with_output(right)[name]()
        assert right.all()


def test_a_trained_output_wider_than_a_part_is_refused() -> None:
    y, x = torch.zeros(1, 600, requires_grad=True), torch.ones(1, 600)
    weights = torch.ones(1, 600, 600)
    addresses = torch.tensor([weights.data_ptr()])
    with pytest.raises(RuntimeError, match="y is a leaf"):
        punica_kernels.dispatch_bgmv(y, x, addresses, torch.tensor([0]), 0, 1.0)
    assert not y.any()


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


def test_results_are_new_tensors_of_the_arguments_type_and_shape() -> None:
    """Also of a parameter, of which torch makes them in another way, and under inference mode."""

    def ints(*values: int) -> Any:
        return torch.tensor(values)

    for convert in (lambda t: t, lambda t: torch.nn.Parameter(t, requires_grad=False)):
        for mode in (torch.no_grad, torch.inference_mode):
            with mode():
                tokens = convert(torch.tensor([[10, 11, 12, 20, 98, 99]]))
                sampled = ints(11, 12, 13, 21, 22, 23)
                last, mask, flat = mtp_utils.verify_speculative_tokens(tokens, sampled, 2, 0, 2)
                state = (ints(1, 0), ints(6, 9), ints(2, 3), convert(ints(41, 52)))
                tables = torch.tensor([[40, 41, -1], [50, 51, 52]])
                accepted = convert(ints(2, 0))
                blocks, remove = mtp_utils.rewind_kv_cache(
                    accepted, ints(0, 0), *state, tables, 2, 4
                )
            assert last.tolist() == [2, 3] and mask.tolist() == [True] * 4 + [False] * 2
            assert flat.data_ptr() == tokens.data_ptr() and flat.shape == (6,)
            assert blocks.tolist() == [41, 52] and remove.tolist() == [False, True]
            for result in (last, mask, blocks, remove):
                assert type(result) is torch.Tensor and result.is_contiguous()
                assert result.storage_offset() == 0 and not result.requires_grad
                assert result.is_inference() == (mode is torch.inference_mode)
    empty = torch.empty(0, dtype=torch.int64)
    assert [len(r) for r in mtp_utils.verify_speculative_tokens(empty, empty, 0, 0, 2)] == [0] * 3


def test_compiled_calls_give_what_eager_ones_do() -> None:
    import heddle.torch

    assert heddle.torch.OPERATORS
    tokens, sampled = torch.tensor([[10, 11, 12, 20, 98, 99]]), torch.arange(11, 17)
    verify = mtp_utils.verify_speculative_tokens
    compiled = torch.compile(verify, fullgraph=True, backend="aot_eager")
    given = (tokens, sampled, 2, 0, 2)
    for eager, traced in zip(verify(*given), compiled(*given), strict=True):
        assert torch.equal(eager, traced) and eager.dtype == traced.dtype
    results = []
    compiled = torch.compile(mtp_utils.rewind_kv_cache, fullgraph=True, backend="aot_eager")
    for function in (mtp_utils.rewind_kv_cache, compiled):
        state = [torch.tensor(values) for values in ([1, 0], [6, 9], [2, 3], [41, 52])]
        tables, none = torch.tensor([[40, 41, -1], [50, 51, 52]]), torch.tensor([0, 0])
        released = function(torch.tensor([2, 0]), none, *state, tables, 2, 4)
        results.append([t.tolist() for t in (*released, *state, tables)])
    assert results[0] == results[1] and results[0][:2] == [[41, 52], [False, True]]
