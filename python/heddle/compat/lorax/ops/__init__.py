"""Drop-in for `lorax_server.utils.ops`: LoRA, the weights of all adapters stacked in one tensor.

Row i of a bgmv call uses adapter `lora_indices_tensor[i]`; in an sgmv call, so do the
`seq_len_tensor[i]` rows from `b_seq_start_loc[i]` on. A negative id, one past the last adapter, and
a row in no sequence mean: no adapter, the row is not touched. Weights may have four axes, the
second of size 1. Sums are f32 and rounded once. `max_seq_length` and `override_config` are hints
for another compiler and change nothing, but for one: see bgmv_shrink.
"""

from __future__ import annotations

from typing import Any

from heddle import ops
from heddle._arguments import LoraBatch
from heddle.compat._arrays import in_any_layout, last_axis_has_gaps, without_gaps

__all__ = [
    "bgmv_expand",
    "bgmv_expand_slice",
    "bgmv_shrink",
    "sgmv_expand",
    "sgmv_expand_slice",
    "sgmv_shrink",
]


def bgmv_shrink(
    inputs: Any,
    lora_a_weights: Any,
    output_tensor: Any,
    lora_indices_tensor: Any,
    scaling: float = 1.0,
    override_config: dict[str, int] | None = None,
) -> None:
    """`output[i] += scaling * A[ids[i]] inputs[i]`; overwrites where override_config has SPLIT_K 1.

    Args:
        inputs: [batch, hidden] f32|f16|bf16.
        lora_a_weights: [adapters, rank, hidden] f32|f16|bf16.
        output_tensor: [batch, rank] f32|f16|bf16, updated.
        lora_indices_tensor: [batch] i32|i64.
        scaling: Factor of every row.
        override_config: A dict or None.
    """
    _check_config(override_config)
    accumulate = not override_config or override_config.get("SPLIT_K") != 1
    batch = LoraBatch(slot_ids=lora_indices_tensor)
    _shrink(inputs, lora_a_weights, output_tensor, batch, scaling, accumulate)


def bgmv_expand(
    inputs: Any,
    lora_b_weights: Any,
    output_tensor: Any,
    lora_indices_tensor: Any,
    add_inputs: bool = True,
    override_config: dict[str, int] | None = None,
) -> None:
    """`output[i][:features] += B[ids[i]] inputs[i]`, overwritten with `add_inputs=False`.

    Args:
        inputs: [batch, rank] f32|f16|bf16.
        lora_b_weights: [adapters, features, rank] f32|f16|bf16.
        output_tensor: [batch, >= features] f32|f16|bf16, updated.
        lora_indices_tensor: [batch] i32|i64.
        add_inputs: Add to the output.
        override_config: A dict or None.
    """
    _check_config(override_config)
    _expand(
        inputs, lora_b_weights, output_tensor, LoraBatch(slot_ids=lora_indices_tensor), add_inputs
    )


def bgmv_expand_slice(
    inputs: Any,
    lora_b_weights: Any,
    output_tensor: Any,
    lora_indices_tensor: Any,
    slice_offset: int,
    slice_size: int,
    add_inputs: bool = True,
    override_config: dict[str, int] | None = None,
) -> None:
    """bgmv_expand into the columns [slice_offset, slice_offset + slice_size) of the output."""
    _check_config(override_config)
    _check_slice(lora_b_weights, slice_size)
    batch = LoraBatch(slot_ids=lora_indices_tensor)
    _expand(inputs, lora_b_weights, output_tensor, batch, add_inputs, slice_offset)


def sgmv_shrink(
    inputs: Any,
    lora_a_weights: Any,
    output_tensor: Any,
    b_seq_start_loc: Any,
    seq_len_tensor: Any,
    lora_indices_tensor: Any,
    batches: int,
    max_seq_length: int,
    scaling: float,
) -> None:
    """`output[t] += scaling * A[ids[i]] inputs[t]` for the rows t of each sequence i.

    Args:
        inputs: [tokens, hidden] f32|f16|bf16.
        lora_a_weights: [adapters, rank, hidden] f32|f16|bf16.
        output_tensor: [tokens, rank] f32|f16|bf16, updated.
        b_seq_start_loc: [batches] i32|i64, first row of each sequence.
        seq_len_tensor: [batches] i32|i64.
        lora_indices_tensor: [batches] i32|i64.
        batches: Number of sequences.
        max_seq_length: A hint.
        scaling: Factor of every row.
    """
    batch = _segments(b_seq_start_loc, seq_len_tensor, lora_indices_tensor, batches)
    _shrink(inputs, lora_a_weights, output_tensor, batch, scaling, True)


def sgmv_expand(
    inputs: Any,
    lora_b_weights: Any,
    output_tensor: Any,
    b_seq_start_loc: Any,
    seq_len_tensor: Any,
    lora_indices_tensor: Any,
    batches: int,
    max_seq_length: int,
    add_inputs: bool = False,
) -> None:
    """`output[t][:features] = B[ids[i]] inputs[t]` for the rows t of each sequence i.

    With `add_inputs=True` it is added to the output.

    Args:
        inputs: [tokens, rank] f32|f16|bf16.
        lora_b_weights: [adapters, features, rank] f32|f16|bf16.
        output_tensor: [tokens, >= features] f32|f16|bf16, updated.
        b_seq_start_loc: [batches] i32|i64, first row of each sequence.
        seq_len_tensor: [batches] i32|i64.
        lora_indices_tensor: [batches] i32|i64.
        batches: Number of sequences.
        max_seq_length: A hint.
        add_inputs: Add to the output.
    """
    batch = _segments(b_seq_start_loc, seq_len_tensor, lora_indices_tensor, batches)
    _expand(inputs, lora_b_weights, output_tensor, batch, add_inputs)


def sgmv_expand_slice(
    inputs: Any,
    lora_b_weights: Any,
    output_tensor: Any,
    b_seq_start_loc: Any,
    seq_len_tensor: Any,
    lora_indices_tensor: Any,
    batches: int,
    max_seq_length: int,
    slice_offset: int,
    slice_size: int,
    add_inputs: bool = False,
) -> None:
    """sgmv_expand into the columns [slice_offset, slice_offset + slice_size) of the output."""
    _check_slice(lora_b_weights, slice_size)
    batch = _segments(b_seq_start_loc, seq_len_tensor, lora_indices_tensor, batches)
    _expand(inputs, lora_b_weights, output_tensor, batch, add_inputs, slice_offset)


def _shrink(
    inputs: Any, weights: Any, output: Any, batch: LoraBatch, scaling: float, accumulate: bool
) -> None:
    weights, swapped = _stack(weights, "lora_a_weights")
    layout = "rank_minor" if swapped else "rank_major"
    in_any_layout(
        lambda y, x: ops.lora_shrink(
            y, x, weights, batch, scale=scaling, accumulate=accumulate, layout=layout
        ),
        output,
        inputs,
    )


def _expand(
    inputs: Any,
    weights: Any,
    output: Any,
    batch: LoraBatch,
    accumulate: bool,
    slice_offset: int = 0,
) -> None:
    weights, swapped = _stack(weights, "lora_b_weights")
    layout = "rank_major" if swapped else "rank_minor"
    in_any_layout(
        lambda y, h: ops.lora_expand(
            y,
            h,
            weights,
            batch,
            slice_offset=slice_offset,
            accumulate=bool(accumulate),
            layout=layout,
        ),
        output,
        inputs,
    )


def _stack(weights: Any, name: str) -> tuple[Any, bool]:
    """Weights with three axes, and whether the last two were swapped to close gaps."""
    if weights.ndim == 4:
        if weights.shape[1] != 1:
            raise ValueError(
                f"{name}.size(1) is {weights.shape[1]}, expected 1 of weights with four axes"
            )
        weights = weights[:, 0]
    if weights.ndim == 3 and last_axis_has_gaps(weights):
        return without_gaps(weights.swapaxes(1, 2)), True
    return weights, False


def _segments(starts: Any, lengths: Any, ids: Any, batches: int) -> LoraBatch:
    for name, tensor in (
        ("b_seq_start_loc", starts),
        ("seq_len_tensor", lengths),
        ("lora_indices_tensor", ids),
    ):
        if tuple(tensor.shape) != (batches,):
            raise ValueError(
                f"{name} has shape {tuple(tensor.shape)}, expected batches = ({batches},)"
            )
    return LoraBatch(seg_starts=starts, seg_lens=lengths, seg_slots=ids)


def _check_config(override_config: object) -> None:
    if override_config is not None and not isinstance(override_config, dict):
        raise TypeError(
            f"override_config is a {type(override_config).__name__}, expected a dict or None"
        )


def _check_slice(weights: Any, slice_size: int) -> None:
    if weights.shape[-2] != slice_size:
        raise ValueError(
            f"slice_size is {slice_size}, expected lora_b_weights.size(-2) = {weights.shape[-2]}"
        )
