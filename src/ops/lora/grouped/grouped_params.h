#pragma once

#include "ops/lora/device/params.h"

namespace heddle::cuda {

// Batches of many rows: the rows of the whole batch are grouped by adapter, up to 128 a row tile. The first kernel makes the sums
// of h of a row tile and up to 48, 96 or 192 ranks of all slices, the second multiplies them with B; on 9.0, where y is large and ranks
// go up to 64, one between them joins the sums of strands to h. The sums are those of lora_cuda_params.h, bit for bit. Each of the
// eight strands of a row has one place in a tree of sums, so a work item of the first kernel may have 1, 2, 4 or 8 of them.
inline constexpr int kRowTileRows = 128;
// Fewer where there are few in all, so that all multiprocessors have some.
inline constexpr int kFewRows = 1024, kRowTileFewRows = 32;
inline constexpr int kSomeRows = 4096, kRowTileSomeRows = 64;
inline constexpr int kSubtreeStrands =
    2;  // at most this many strands are joined by the first kernel
inline constexpr int kMinLoraParts = kLoraStrands / kSubtreeStrands;
inline constexpr int kPlanThreads = 1024;
inline constexpr int kPlanSlots = 512;        // slots that are grouped at a time
inline constexpr int64_t kPrefillRows = 256;  // batches with more rows than this

/// Rows of one adapter: rows[first + i] of the plan, i < num_rows.
struct LoraRowTile {
  int32_t slot, first, num_rows;
  int32_t num_rank_tiles;  // of the adapter, as slot_ranks of the plan says
};

/// Begins the plan of a batch; then come, for each row of the batch, a LoraRowTile, the number of the row that is there when rows
/// are in the order of their adapters, and its slot.
struct LoraPrefillPlan {
  int32_t num_tiles, num_rows;
};
inline constexpr size_t kPrefillPlanHead = 256;

[[nodiscard]] constexpr size_t prefill_plan_bytes(int64_t num_tokens) {
  const size_t of_row = sizeof(LoraRowTile) + 2 * sizeof(int32_t);
  return (kPrefillPlanHead + size_t(num_tokens) * of_row + 255) / 256 * 256;
}

/// What the kernels read of a plan.
struct LoraPrefillRows {
  const LoraPrefillPlan* head;
  const LoraRowTile* tiles;  // [num_tiles]
  const int32_t* rows;       // [num_rows]
};
[[nodiscard]] inline LoraPrefillRows prefill_rows(const std::byte* plan, int64_t num_tokens) {
  const auto* tiles = reinterpret_cast<const LoraRowTile*>(plan + kPrefillPlanHead);
  return {reinterpret_cast<const LoraPrefillPlan*>(plan), tiles,
          reinterpret_cast<const int32_t*>(tiles + num_tokens)};
}

/// Groups all rows of a batch, one block; p.plans is the plan, `device` the current one.
void plan_prefill(const LoraPlanParams& p, int device, cudaStream_t stream);

// Ranks are multiplied 16 at a time, a step; of more than 16, two steps at a time.
inline constexpr int kHPairRanks = 32;
inline constexpr int kHStepVectors = 4, kHVectorBytes = 16;  // in LoraPrefillParams::h: hi, then lo

struct LoraPrefillParams {
  LoraParams site;  // of all rows; plan, partials and the counts of work items are not used
  LoraPrefillRows plan;
  // [parts][row in the plan's order][h_width] sums of subtrees of 8 / parts strands.
  float* partials;
  int64_t part_stride;
  int32_t h_width, slice_ranks;  // slice s has the columns [s * slice_ranks, ...)
  int32_t max_passes;            // rank passes of the adapter that has most
  int32_t max_split, shrink_blocks;
  // Where h is joined: [slice][row in the plan's order][h_row_vectors], as the second kernel multiplies it.
  std::byte* h;
  int64_t h_slice_bytes;
  int32_t h_row_vectors;              // of 16 bytes
  int32_t h_values;                   // ranks times rows of h that the second kernel has place for
  int32_t rounds_per_tile;            // work items of the second kernel for one row tile
  int32_t round_end[kLoraMaxSlices];  // of this slice and those before
  bool has_a, has_b;
};

/// Ranks that an instance of the second kernel takes: up to 16, up to 64, any.
enum class PrefillRanks { kNarrow, kWide, kAny };

/// Such an instance: warps of a block, blocks that a multiprocessor has at once, outputs of a warp.
struct PrefillForm {
  int warps, blocks, warp_outputs;
  /// Of a block.
  [[nodiscard]] constexpr int outputs() const { return warps * warp_outputs; }
};
[[nodiscard]] constexpr PrefillForm prefill_form(PrefillRanks ranks) {
  switch (ranks) {
    case PrefillRanks::kNarrow: return {8, 2, 64};
    case PrefillRanks::kWide: return {8, 2, 32};
    default: return {8, 1, 64};
  }
}
/// The same of the instance for what is not aligned, of any rank.
inline constexpr PrefillForm kAnyForm{8, 2, 32};
/// That of the second kernel for 9.0, beside two warps that move data.
inline constexpr PrefillForm kPrefillStreamForm{8, 2, 32};
inline constexpr int kMinWarpOutputs = 32;
/// Ranks times rows of h that a block has in shared memory, for ranks above 64, and where something is not aligned.
inline constexpr int kLongHValues = 24 << 10, kAnyHValues = 19 << 10;

/// How a call runs: chosen without looking at the batch's rows.
struct LoraPrefillConfig {
  bool is_aligned;   // else the kernels for anything
  bool shrink_sm90;  // the first kernel is that for compute capability 9.0
  bool expand_sm90;  // so is the second, and h is joined between them
  int shrink_tiles;  // rank tiles of a warp of the first kernel
  int shrink_blocks, max_passes, max_split;
  PrefillRanks ranks;
  int expand_blocks, h_values;
  int round_outputs;  // of one work item of the second kernel
  friend bool operator==(const LoraPrefillConfig&, const LoraPrefillConfig&) = default;
};

struct LoraPrefillLaunch {
  LoraPrefillConfig config;
  int device;  // the current one
  cudaStream_t stream;
};

/// The first kernel: portable, and for compute capability 9.0 with the same bits. T: dtype of the weights, x and y.
template <class T>
void launch_prefill_shrink(const LoraPrefillParams& p, const LoraPrefillLaunch& launch);
template <class T>
void launch_prefill_shrink_sm90(const LoraPrefillParams& p, const LoraPrefillLaunch& launch);
/// Of what is not aligned, of any layout.
template <class T>
void launch_prefill_shrink_any(const LoraPrefillParams& p, const LoraPrefillLaunch& launch);
/// Between the two, for ranks up to 64: joins the sums of strands to h.
template <class T>
void launch_prefill_join(const LoraPrefillParams& p, const LoraPrefillLaunch& launch);
/// The second kernel: for 9.0 one that reads what was joined, else one that joins by itself; both have the same bits.
template <class T>
void launch_prefill_expand_sm90(const LoraPrefillParams& p, const LoraPrefillLaunch& launch);
template <class T>
void launch_prefill_expand(const LoraPrefillParams& p, const LoraPrefillLaunch& launch);
/// Of what is not aligned, of any layout and dtype of y.
template <class T>
void launch_prefill_expand_any(const LoraPrefillParams& p, const LoraPrefillLaunch& launch);
/// That of lora_shrink.
void launch_prefill_sum(const LoraPrefillParams& p, const LoraPrefillLaunch& launch);

}  // namespace heddle::cuda
