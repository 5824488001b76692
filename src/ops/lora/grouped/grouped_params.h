#pragma once

#include "ops/lora/device/params.h"

namespace heddle::cuda::lora {

// Batches of many rows: the rows of the whole batch are grouped by adapter, up to 128 a row tile. The first kernel makes the sums
// of h of a row tile and up to 48, 96 or 192 ranks of all slices, the second multiplies them with B; on 9.0, where y is large and ranks
// go up to 64, one between them joins the sums of chains to h. The sums are those of device/params.h, bit for bit. Each of the
// eight chains of a row has one place in a tree of sums, so a work item of the first kernel may have 1, 2, 4 or 8 of them.
inline constexpr int kGroupedTileRows = 128;
// Fewer where there are few in all, so that all multiprocessors have some.
inline constexpr int kFewRows = 1024, kGroupedTileFewRows = 32;
inline constexpr int kSomeRows = 4096, kGroupedTileSomeRows = 64;
inline constexpr int kSubtreeChains = 2;  // at most this many chains are joined by the first kernel
inline constexpr int kMinParts = kChains / kSubtreeChains;
inline constexpr int kPlanThreads = 1024;
inline constexpr int kPlanSlots = 512;           // slots that are grouped at a time
inline constexpr int64_t kShortBatchRows = 256;  // batches with more rows than this

/// Rows of one adapter: rows[first + i] of the plan, i < num_rows.
struct GroupedTile {
  int32_t slot, first, num_rows;
  int32_t num_rank_tiles;  // of the adapter, as slot_ranks of the plan says
};

/// Begins the plan of a batch; then come, for each row of the batch, a GroupedTile, the number of the row that is there when rows
/// are in the order of their adapters, and its slot.
struct GroupedPlan {
  int32_t num_tiles, num_rows;
};
inline constexpr size_t kGroupedPlanHead = 256;

[[nodiscard]] constexpr size_t grouped_plan_bytes(int64_t num_tokens) {
  const size_t of_row = sizeof(GroupedTile) + 2 * sizeof(int32_t);
  return (kGroupedPlanHead + size_t(num_tokens) * of_row + 255) / 256 * 256;
}

/// What the kernels read of a plan.
struct GroupedRows {
  const GroupedPlan* head;
  const GroupedTile* tiles;  // [num_tiles]
  const int32_t* rows;       // [num_rows]
};
[[nodiscard]] inline GroupedRows grouped_rows(const std::byte* plan, int64_t num_tokens) {
  const auto* tiles = reinterpret_cast<const GroupedTile*>(plan + kGroupedPlanHead);
  return {reinterpret_cast<const GroupedPlan*>(plan), tiles,
          reinterpret_cast<const int32_t*>(tiles + num_tokens)};
}

/// Groups all rows of a batch, one block; p.plans is the plan, `device` the current one.
void plan_grouped(const PlanParams& p, int device, cudaStream_t stream);

inline constexpr int kHStepVectors = 4, kHVectorBytes = 16;  // in GroupedParams::h: hi, then lo

struct GroupedParams {
  SiteParams site;  // of all rows; plan, partials and the counts of work items are not used
  GroupedRows plan;
  // [parts][row in the plan's order][h_width] sums of subtrees of 8 / parts chains.
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
  int32_t output_tiles_per_row_tile;  // work items of the second kernel for one row tile
  int32_t output_tile_end[kMaxSlices];  // of this slice and those before
  bool has_a, has_b;
};

/// Ranks that an instance of the second kernel takes: up to 16, up to 64, any.
enum class GroupedRanks { kNarrow, kWide, kAny };

/// Such an instance: warps of a block, blocks that a multiprocessor has at once, outputs of a warp.
struct ExpandForm {
  int warps, blocks, warp_outputs;
  /// Of a block.
  [[nodiscard]] constexpr int outputs() const { return warps * warp_outputs; }
};
[[nodiscard]] constexpr ExpandForm expand_form(GroupedRanks ranks) {
  switch (ranks) {
    case GroupedRanks::kNarrow: return {8, 2, 64};
    case GroupedRanks::kWide: return {8, 2, 32};
    default: return {8, 1, 64};
  }
}
/// The same of the instance for what is not aligned, of any rank.
inline constexpr ExpandForm kGeneralForm{8, 2, 32};
/// That of the second kernel for 9.0, beside two warps that move data.
inline constexpr ExpandForm kStreamForm{8, 2, 32};
inline constexpr int kMinWarpOutputs = 32;
/// Ranks times rows of h that a block has in shared memory, for ranks above 64, and where something is not aligned.
inline constexpr int kLongHValues = 24 << 10, kGeneralHValues = 19 << 10;

/// How a call runs: chosen without looking at the batch's rows.
struct GroupedConfig {
  bool is_aligned;   // else the kernels for anything
  bool shrink_sm90;  // the first kernel is that for compute capability 9.0
  bool expand_sm90;  // so is the second, and h is joined between them
  int shrink_tiles;  // rank tiles of a warp of the first kernel
  int shrink_blocks, max_passes, max_split;
  GroupedRanks ranks;
  int expand_blocks, h_values;
  int tile_outputs;  // of one work item of the second kernel
  friend bool operator==(const GroupedConfig&, const GroupedConfig&) = default;
};

struct GroupedLaunch {
  GroupedConfig config;
  int device;  // the current one
  cudaStream_t stream;
};

/// The first kernel: portable, and for compute capability 9.0 with the same bits. T: dtype of the weights, x and y.
template <class T>
void launch_grouped_shrink(const GroupedParams& p, const GroupedLaunch& launch);
template <class T>
void launch_grouped_shrink_sm90(const GroupedParams& p, const GroupedLaunch& launch);
/// Of what is not aligned, of any layout.
template <class T>
void launch_grouped_shrink_general(const GroupedParams& p, const GroupedLaunch& launch);
/// Between the two, for ranks up to 64: joins the sums of chains to h.
template <class T>
void launch_grouped_join(const GroupedParams& p, const GroupedLaunch& launch);
/// The second kernel: for 9.0 one that reads what was joined, else one that joins by itself; both have the same bits.
template <class T>
void launch_grouped_expand_sm90(const GroupedParams& p, const GroupedLaunch& launch);
template <class T>
void launch_grouped_expand(const GroupedParams& p, const GroupedLaunch& launch);
/// Of what is not aligned, of any layout and dtype of y.
template <class T>
void launch_grouped_expand_general(const GroupedParams& p, const GroupedLaunch& launch);
/// That of lora_shrink.
void launch_grouped_sum(const GroupedParams& p, const GroupedLaunch& launch);

}  // namespace heddle::cuda::lora
