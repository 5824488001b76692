#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "heddle/core/context.h"
#include "heddle/core/tensor_view.h"
#include "heddle/ops/lora_table.h"

namespace heddle {

inline constexpr int32_t kNoAdapter = -1;

/// Which adapter each row of a batch uses: per-token ids, segments of rows that share one, or, for
/// lora_apply, any number of pairs (adapter, scale) a token. One of the three is given.
/// Kernel-ready arrays.
///
/// With segments, row t in [seg_starts[s], seg_ends[s]) uses slot seg_slots[s]; seg_lens[s], where
/// that is given, is seg_ends[s] - seg_starts[s]. Segments must not overlap, may come in any order
/// and leave gaps, and one with seg_ends <= seg_starts is empty. A negative slot, one at or above
/// the number of slots of the weights, and a row in no segment mean: no adapter, the row is not
/// touched. So does a slot whose weights are null. With
/// HEDDLE_VALIDATE=1 these are errors: a slot at or above the number of slots, a used slot whose
/// address in a table of pointers is null, segments that overlap, and segments that leave the rows
/// [0, num_tokens). On CUDA every call then waits for its stream, and one that is captured checks
/// nothing (heddle/core/validate.h).
///
/// With pairs, token t has the pairs [pair_starts[t], pair_starts[t + 1]), in this order; it may
/// have none, and an adapter more than once. A pair whose slot is no adapter, as above, adds
/// nothing. A token uses its first max_pairs pairs; where max_pairs is absent, all of them, which
/// the CPU alone can count. HEDDLE_VALIDATE=1 refuses starts that do not ascend from 0 up to at
/// most num_pairs, a token with more than max_pairs pairs, and slots as above; without it no pair
/// outside [0, num_pairs) is read.
struct LoraBatch {
  ConstTensorView slot_ids{};    // [num_tokens] i32|i64, or absent when segments are given
  ConstTensorView seg_starts{};  // [num_segments] i32|i64
  ConstTensorView seg_ends{};    // [num_segments] i32|i64
  ConstTensorView seg_slots{};   // [num_segments] i32|i64, or absent: segment s uses slot s
  ConstTensorView row_scale{};   // [num_tokens] f32, or absent: a factor for each row's delta
  /// Of lora_plan, or absent: then a call on CUDA makes its own, for which lora_shrink and
  /// lora_expand of up to 32 ids need no launch. The CPU needs none, and pairs take none.
  ConstTensorView plan{};
  ConstTensorView pair_starts{};       // [num_tokens + 1] i32|i64
  ConstTensorView pair_slots{};        // [num_pairs] i32|i64
  ConstTensorView pair_scales{};       // [num_pairs] f32, or absent: 1
  std::optional<int64_t> max_pairs{};  // of a token; CUDA needs it: each costs launches
  ConstTensorView seg_lens{};  // [num_segments] i32|i64: rows of each segment, in place of seg_ends

  [[nodiscard]] static LoraBatch from_ids(ConstTensorView slot_ids) {
    return {.slot_ids = slot_ids};
  }
  [[nodiscard]] static LoraBatch from_segments(ConstTensorView starts, ConstTensorView ends,
                                               ConstTensorView slots = {}) {
    return {.seg_starts = starts, .seg_ends = ends, .seg_slots = slots};
  }
  [[nodiscard]] static LoraBatch from_pairs(ConstTensorView starts, ConstTensorView slots,
                                            ConstTensorView scales = {},
                                            std::optional<int64_t> max_pairs = {}) {
    return {
        .pair_starts = starts, .pair_slots = slots, .pair_scales = scales, .max_pairs = max_pairs};
  }
};

/// y[t] = scale * A[slot(t)] x[t]     (+= with accumulate)     the "shrink" half of LoRA
///   y [num_tokens, rank] f32|f16|bf16; x [num_tokens, in_features] f32|f16|bf16
///   a [num_slots, rank, in_features] (kRankMajor) or [num_slots, in_features, rank] (kRankMinor)
///     f32|f16|bf16
/// Each sum runs over in_features in f32, on the CPU in ascending order, a fused multiply-add each,
/// on CUDA in one order, too, which docs/ops/lora.md gives; scale (times row_scale of the batch)
/// multiplies the sum, and y is rounded once. Rows without an adapter are not touched. Rank 1 to
/// 512. CUDA: f16 and bf16, x and a of one dtype; a call needs as much workspace as
/// lora_apply_workspace_bytes says for one slice. Strides: last axes without gaps, all others any.
/// LoRA: Hu et al. 2021, arXiv 2106.09685; SGMV and BGMV: Chen et al. 2023, arXiv 2310.18547.
void lora_shrink(const ExecContext& ctx, TensorView y, ConstTensorView x, ConstTensorView a,
                 const LoraBatch& batch, float scale = 1.0f, bool accumulate = false,
                 LoraLayout layout = LoraLayout::kRankMajor);

/// The same with one slice of a table: ranks differ by row, columns of y from a row's rank on are
/// not touched.
void lora_shrink(const ExecContext& ctx, TensorView y, ConstTensorView x, const LoraTable& a,
                 int slice, const LoraBatch& batch, float scale = 1.0f, bool accumulate = false);

/// y[t][slice_offset + n] = scale * sum_r B[slot(t)][n][r] h[t][r]   (+= with accumulate)
/// the "expand" half of LoRA
///   y [num_tokens, >= slice_offset + out_features] f32|f16|bf16; h [num_tokens, rank] f32|f16|bf16
///   b [num_slots, out_features, rank] (kRankMinor) or [num_slots, rank, out_features] (kRankMajor)
///     f32|f16|bf16
/// Each sum runs over the rank in f32, on the CPU in ascending order; y = T(y + scale * sum) with
/// one rounding, scale as in shrink. On CUDA h enters as two values of b's dtype, f16 or bf16
/// (docs/ops/lora.md); workspace as for shrink. Rows without an adapter and columns outside the
/// slice are not touched.
void lora_expand(const ExecContext& ctx, TensorView y, ConstTensorView h, ConstTensorView b,
                 const LoraBatch& batch, int64_t slice_offset = 0, float scale = 1.0f,
                 bool accumulate = true, LoraLayout layout = LoraLayout::kRankMinor);

/// The same with one slice of a table of out_features columns; the entry's scale multiplies, too.
void lora_expand(const ExecContext& ctx, TensorView y, ConstTensorView h, const LoraTable& b,
                 int slice, int64_t out_features, const LoraBatch& batch, int64_t slice_offset = 0,
                 float scale = 1.0f, bool accumulate = true);

/// One slice of a linear site: where its product lies.
struct LoraSlice {
  /// [num_tokens, out_features] f32|f16|bf16; a column range of a fused product is a view of it.
  TensorView y;
};

/// A whole linear site: for every slice s of the site
///   slices[s].y[t] = T(y[t] + row_scale[t] * B.scale * sum_r B[n][r] h[r]),   h = A x[t] in f32
/// with A and B the entries [slot(t), s] of the two tables; A's scale is not read. The bits are
/// those of lora_shrink into f32 followed by lora_expand. Needs lora_apply_workspace_bytes of
/// workspace. A slot that has A but not B, or the other way round, for a slice counts as not
/// touching it.
///
/// With the pairs p of token t, in their order,
///   slices[s].y[t] = T(y[t] + sum_p (pair_scales[p] * row_scale[t]) * B_p.scale * B_p A_p x[t])
/// where the sum begins with y[t] and is in f32, rounded to T once: one pair has the bits of
/// slot_ids with row_scale = its scale, and a row's bits do not depend on the batch. Rows none of
/// whose pairs touches a slice keep its y, which is neither read nor written. Needs
/// lora_pairs_workspace_bytes.
void lora_apply(const ExecContext& ctx, std::span<const LoraSlice> slices, ConstTensorView x,
                const LoraTable& a, const LoraTable& b, const LoraBatch& batch);

/// CUDA: groups the rows of a batch by adapter, once for all sites of a step; calls whose batch has
/// the plan launch one kernel less.  plan [>= lora_plan_bytes] u8, 256-byte aligned; num_slots and
/// max_rank as the tables' of all those calls; slot_ranks [num_slots] i32|i64: the largest rank of
/// each slot at any site, or absent: max_rank for all. The arrays of the batch may change between
/// replays of a captured graph; the plan then follows. A call whose plan is not its own makes y NaN
/// in all rows (where there is a rank and an output at all), and CudaContext::check() tells: one
/// that was never written, or for another num_tokens, num_slots or max_rank, or for arrays of a
/// batch at other addresses, as copies are.
void lora_plan(const ExecContext& ctx, TensorView plan, const LoraBatch& batch, int64_t num_tokens,
               int32_t num_slots, int32_t max_rank, ConstTensorView slot_ranks = {});
[[nodiscard]] size_t lora_plan_bytes(int64_t num_tokens, int max_rank);

/// Upper bound for num_tokens rows, whatever their adapters are. Like lora_plan_bytes it throws
/// kInvalidArgument for extents below 0 or above 2^40 and ranks above 2^16. On CUDA lora_shrink
/// needs as much as lora_apply of one slice, and lora_expand as much as with in_features = 0.
[[nodiscard]] size_t lora_apply_workspace_bytes(Device device, int64_t num_tokens,
                                                int64_t in_features, int num_slices, int max_rank);
/// For a batch with pairs, however many. out_features: of all slices together, those whose
/// y is f32 left out.
[[nodiscard]] size_t lora_pairs_workspace_bytes(Device device, int64_t num_tokens,
                                                int64_t in_features, int64_t out_features,
                                                int num_slices, int max_rank);

}  // namespace heddle
