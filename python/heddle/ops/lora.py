"""Low-rank adapters of many requests in one batch.

Which adapter a row uses is told by `slot_ids`, [num_tokens], or by segments: rows `seg_starts[s]` to `seg_ends[s]` use
`seg_slots[s]`. Segments must not overlap; they may come in any order and leave gaps. A negative slot, one at or above the
number of slots, and a row in no segment mean: no adapter, the row is not touched. `row_scale`, [num_tokens] f32, is a factor
for each row.
"""

from __future__ import annotations

from heddle._operation import Array, operation


@operation(mutates=["y"])
def lora_shrink(
    y: Array,
    x: Array,
    a: Array,
    *,
    slot_ids: Array | None = None,
    seg_starts: Array | None = None,
    seg_ends: Array | None = None,
    seg_slots: Array | None = None,
    row_scale: Array | None = None,
    scale: float = 1.0,
    accumulate: bool = False,
    layout: str = "rank_major",
) -> None:
    """`y[t] = scale * row_scale[t] * A[slot(t)] x[t]`, added to `y` with `accumulate`: the "shrink" half of LoRA.

    Each sum runs over in_features in ascending order in f32, one fused multiply-add each; `y` is rounded once.

    Args:
        y: [num_tokens, rank] f32|f16|bf16, written; rows without an adapter are not touched.
        x: [num_tokens, in_features] f32|f16|bf16.
        a: [num_slots, rank, in_features] f32|f16|bf16, with `layout="rank_minor"` [num_slots, in_features, rank].
        slot_ids: [num_tokens] i32|i64.
        seg_starts: [num_segments] i32|i64.
        seg_ends: [num_segments] i32|i64.
        seg_slots: [num_segments] i32|i64.
        row_scale: [num_tokens] f32.
        scale: Factor of every row.
        accumulate: Add to `y`.
        layout: "rank_major" or "rank_minor", the order of the last two axes of `a`.

    Raises:
        ValueError: Shapes that disagree, a rank above 512, gaps in a last axis, ids and segments both or neither given.
        NotImplementedError: Another dtype or device.

    Source: Hu et al. 2021, arXiv 2106.09685; Chen et al. 2023, arXiv 2310.18547.
    """


@operation(mutates=["y"])
def lora_expand(
    y: Array,
    h: Array,
    b: Array,
    *,
    slot_ids: Array | None = None,
    seg_starts: Array | None = None,
    seg_ends: Array | None = None,
    seg_slots: Array | None = None,
    row_scale: Array | None = None,
    slice_offset: int = 0,
    scale: float = 1.0,
    accumulate: bool = True,
    layout: str = "rank_minor",
) -> None:
    """`y[t][slice_offset + n] = scale * row_scale[t] * sum_r B[slot(t)][n][r] h[t][r]`, by default added to `y`.

    The "expand" half of LoRA. Each sum runs over the rank in ascending order in f32; `y` is rounded once.

    Args:
        y: [num_tokens, >= slice_offset + out_features] f32|f16|bf16, updated; rows without an adapter and columns outside
            the slice are not touched.
        h: [num_tokens, rank] f32|f16|bf16.
        b: [num_slots, out_features, rank] f32|f16|bf16, with `layout="rank_major"` [num_slots, rank, out_features].
        slot_ids: [num_tokens] i32|i64.
        seg_starts: [num_segments] i32|i64.
        seg_ends: [num_segments] i32|i64.
        seg_slots: [num_segments] i32|i64.
        row_scale: [num_tokens] f32.
        slice_offset: First column of `y` that is written.
        scale: Factor of every row.
        accumulate: Add to `y`; else overwrite.
        layout: "rank_minor" or "rank_major", the order of the last two axes of `b`.

    Raises:
        ValueError: Shapes that disagree, a rank above 512, gaps in a last axis, ids and segments both or neither given.
        NotImplementedError: Another dtype or device.

    Source: Hu et al. 2021, arXiv 2106.09685; Chen et al. 2023, arXiv 2310.18547.
    """
