"""Low-rank adapters of many requests in one batch.

A `heddle.LoraBatch` says which adapter a row uses. With HEDDLE_VALIDATE=1 a slot at or above
the number of slots, a null address in use, and segments that overlap or leave the rows raise
ValueError; calls on a GPU then wait for their stream, and check nothing while a graph is captured.

Weights come in one of three forms:

* stacked in one array [num_slots, rank, features], or [num_slots, features, rank];
* by address: an i64 vector [num_slots], each the start of one adapter's page [num_layers, rank,
  features] (or [num_layers, features, rank]) without gaps. `layer_idx` picks the layer,
  `weight_dtype` names the dtype (default: that of `x` or `h`), `rank` the rank of the pages
  (default: that of the call) and `first_rank` the first rank that this call uses;
* a `heddle.AdapterTable`, whose ranks may differ; `slice` picks the slice.

Arrays may lie on a GPU; there the dtype of `x` is that of the weights, f16 or bf16. With many calls
for one batch, `lora_plan` groups its rows once for all of them.

`layout` names the order of the last two axes of the first two forms: "rank_major" is [rank,
features], "rank_minor" is [features, rank].
"""

from __future__ import annotations

from heddle._arguments import LoraBatch
from heddle._core import AdapterTable
from heddle._operation import Array, operation

__all__ = ["lora_apply", "lora_expand", "lora_plan", "lora_shrink"]


@operation(mutates=["y"])
def lora_shrink(
    y: Array,
    x: Array,
    a: Array | AdapterTable,
    batch: LoraBatch,
    *,
    scale: float = 1.0,
    accumulate: bool = False,
    layout: str = "rank_major",
    slice: int = 0,
    weight_dtype: str | None = None,
    layer_idx: int = 0,
    rank: int | None = None,
    first_rank: int = 0,
) -> None:
    """`y[t] = scale * row_scale[t] * A[slot(t)] x[t]`, the "shrink" half of LoRA.

    Each sum runs over in_features in ascending order in f32, one fused multiply-add each; `y` is
    rounded once.

    Args:
        y: [num_tokens, rank] f32|f16|bf16, written; rows without an adapter, and columns from the
            rank of a row's adapter on, are not touched.
        x: [num_tokens, in_features] f32|f16|bf16.
        a: [num_slots, rank, in_features] f32|f16|bf16, or another form of weights (see above).
        batch: The slot of each row, by ids or segments.
        scale: Factor of every row.
        accumulate: Add to `y`; else overwrite.
        layout: "rank_major" or "rank_minor".
        slice: Of an `AdapterTable`.
        weight_dtype: "f32", "f16" or "bf16", of weights by address.
        layer_idx: Of weights by address.
        rank: Of pages of weights by address.
        first_rank: Of weights by address.

    Raises:
        ValueError: Shapes that disagree, a rank above 512, gaps in a last axis, ids and segments
            both or neither given.
        NotImplementedError: Another dtype or device.

    Source: Hu et al. 2021, arXiv 2106.09685; Chen et al. 2023, arXiv 2310.18547.
    """


@operation(mutates=["y"])
def lora_expand(
    y: Array,
    h: Array,
    b: Array | AdapterTable,
    batch: LoraBatch,
    *,
    slice_offset: int = 0,
    scale: float = 1.0,
    accumulate: bool = True,
    layout: str = "rank_minor",
    out_features: int | None = None,
    slice: int = 0,
    weight_dtype: str | None = None,
    layer_idx: int = 0,
    rank: int | None = None,
    first_rank: int = 0,
) -> None:
    """`y[t][slice_offset + n] += scale * row_scale[t] * sum_r B[slot(t)][n][r] h[t][r]`.

    The "expand" half of LoRA. Each sum runs over the rank in ascending order in f32; `y` is rounded
    once, after the addition.

    Args:
        y: [num_tokens, >= slice_offset + out_features] f32|f16|bf16, updated; rows without an
            adapter and columns outside the slice are not touched.
        h: [num_tokens, rank] f32|f16|bf16.
        b: [num_slots, out_features, rank] f32|f16|bf16, or another form of weights (see above).
        batch: The slot of each row, by ids or segments.
        slice_offset: First column of `y` that is written.
        scale: Factor of every row.
        accumulate: Add to `y`; else overwrite.
        layout: "rank_minor" or "rank_major".
        out_features: Columns that are written, for weights by address; None: the rest of `y`.
        slice: Of an `AdapterTable`.
        weight_dtype: "f32", "f16" or "bf16", of weights by address.
        layer_idx: Of weights by address.
        rank: Of pages of weights by address.
        first_rank: Of weights by address.

    Raises:
        ValueError: Shapes that disagree, a rank above 512, gaps in a last axis, ids and segments
            both or neither given.
        NotImplementedError: Another dtype or device.

    Source: Hu et al. 2021, arXiv 2106.09685; Chen et al. 2023, arXiv 2310.18547.
    """


@operation(mutates=["y"], traceable=False)
def lora_apply(
    y: list[Array],
    x: Array,
    a: AdapterTable,
    b: AdapterTable,
    batch: LoraBatch,
) -> None:
    """A whole linear layer, all slices: `y[s][t] += row_scale[t] * scale * B_s A_s x[t]`.

    The rank vector stays f32, `y` is rounded once. The bits are those of `lora_shrink` into f32
    followed by `lora_expand`.

    With pairs (adapter, scale), `y[s][t]` grows by the sum over those of token t, in f32 and in
    their order, each with `pair_scales[p] * row_scale[t]` as the factor of its row; `y` is rounded
    once, after the last. One pair has the bits of a slot id. A pair without an adapter adds
    nothing, and a token without pairs is not touched.

    Args:
        y: A list with the product of each slice, [num_tokens, out_features] f32|f16|bf16, updated;
            a column range of a fused product is a view of it.
        x: [num_tokens, in_features] f32|f16|bf16.
        a: The A weights of all adapters and slices.
        b: The B weights; each has the scale given to `AdapterTable.set`.
        batch: The slot of each row, by ids, segments or pairs.

    Raises:
        ValueError: Shapes that disagree, more or less than one of ids, segments and pairs given.
        NotImplementedError: Another dtype or device.

    Source: Hu et al. 2021, arXiv 2106.09685; Chen et al. 2023, arXiv 2310.18547.
    """


@operation(mutates=["plan"])
def lora_plan(
    plan: Array,
    batch: LoraBatch,
    num_tokens: int,
    num_slots: int,
    max_rank: int,
    slot_ranks: Array | None = None,
) -> None:
    """`plan = the rows of the batch by adapter`: integers and exact, once for all calls of a step.

    For arrays on a GPU; calls on the CPU need no plan. A call that has it launches one kernel less.
    In a captured graph the plan follows what the arrays of the batch hold at each replay. It is for
    calls whose batch has the same arrays, at the same addresses: with others, as with a copy of
    them, y is NaN, and `heddle.Context.check` reports it.

    Args:
        plan: [>= lora_plan_bytes(num_tokens, max_rank)] u8, 256-byte aligned, written.
        batch: The slot of each row, by ids or segments; its `plan` is not looked at, so it may be
            the one that those calls get.
        num_tokens: Rows of the calls that the plan is for.
        num_slots: Of the weights of all those calls.
        max_rank: Of the weights of all those calls: the rank of stacked weights, and that of the
            call for weights by address.
        slot_ranks: [num_slots] i32|i64, the largest rank of each slot in any call; None: max_rank.

    Raises:
        ValueError: Shapes that disagree, ids and segments both or neither given, a plan that is too
            small or not aligned.
        NotImplementedError: Another dtype, or arrays on the CPU.

    Source: heddle/ops/lora.h.
    """
