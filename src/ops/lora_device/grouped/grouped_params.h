#pragma once

#include "heddle/ops/lora.h"

#include "core/math.h"
#include "ops/lora_device/plan/grouped_plan.h"
#include "ops/lora_device/site_params.h"

namespace heddle::cuda::lora {

// The grouped route, for batches of many rows. The plan groups the rows of the whole batch by
// adapter, up to 128 rows a row tile, and two or three kernels follow:
//
//   shrink    x, A  -->  partials [parts][row][all ranks]    a row tile x 48, 96 or 192 ranks
//   (join)    partials  -->  h as hi and lo                  on 9.0, for large y and ranks up to 64
//   expand    partials or h, B  -->  y                       a row tile x 256 or 512 outputs
//
// The bits are those of sums.h. Each of the eight chains of a row has its place in one
// tree of sums, so it does not matter whether a work item of shrink computes 1, 2, 4 or 8 of the
// chains:
//
//   h = ((c0 + c1) + (c2 + c3)) + ((c4 + c5) + (c6 + c7))
//        `- a part of two chains: shrink adds these, expand (or join) adds the parts
inline constexpr int kSubtreeChains = 2;  // chains that shrink adds up, at most
inline constexpr int kMinSplit = kChains / kSubtreeChains;

inline constexpr int kHStepVectors = 4,
                     kHVectorBytes = 16;  // of GroupedParams::h: 16 ranks as hi, then as lo

/// What a row's adapter is in a slice, for a kernel that multiplies with B itself.
struct alignas(16) RowAdapter {
  int32_t slot;   // kNoAdapter: none
  int32_t h_row;  // in the plan's order
  int32_t rank;   // of h
  float factor;   // NaN where the plan is foreign
};

struct GroupedParams {
  SiteParams site;  // of all rows; its plan, partials and counts of work items are not used
  GroupedRows plan;
  // [parts][row in the plan's order][h_width]: sums of 8 / parts chains.
  float* partials;
  int64_t part_stride;
  int32_t h_width, slice_ranks;  // slice s has the columns from s * slice_ranks on
  int32_t max_passes;            // passes over the ranks that the adapter of the highest rank needs
  int32_t max_split, shrink_blocks;
  // Where join puts h, in the order in which expand multiplies it:
  // [slice][row in the plan's order][h_row_vectors].
  std::byte* h;
  int64_t h_slice_bytes;
  RowAdapter* row_adapters;  // [slice][row of the batch], or null: shrink and join write them
  int32_t h_row_vectors;     // of 16 bytes
  int32_t h_values;          // ranks x rows of h that fit shared memory of expand
  int32_t output_tiles_per_row_tile;    // work items of expand for one row tile
  int32_t output_tile_end[kMaxSlices];  // output tiles of this slice and those before
  bool has_a, has_b;
};

/// Ranks for which expand has instances: up to 16, up to 64, any.
enum class GroupedRanks { kUpTo16, kUpTo64, kUpTo512 };

/// The form of an instance: warps of a block, blocks of a multiprocessor, outputs of a warp.
struct ExpandForm {
  int warps, blocks, warp_outputs;
  /// Outputs of a block.
  [[nodiscard]] constexpr int outputs() const { return warps * warp_outputs; }
};
[[nodiscard]] constexpr ExpandForm expand_form(GroupedRanks ranks) {
  switch (ranks) {
    case GroupedRanks::kUpTo16: return {8, 2, 64};
    case GroupedRanks::kUpTo64: return {8, 2, 32};
    default: return {8, 1, 64};
  }
}
/// The form of the general expand kernel, for any rank.
inline constexpr ExpandForm kGeneralForm{8, 2, 32};
/// The form of the streaming expand kernel for 9.0, without the two warps that move data.
inline constexpr ExpandForm kStreamForm{8, 2, 32};
inline constexpr int kMinWarpOutputs = 32;
/// Ranks x rows of h that fit shared memory of the aligned kernel for any rank, and of the general
/// kernel.
inline constexpr int kLongHValues = 24 << 10, kGeneralHValues = 19 << 10;

/// How a call runs. The choice depends on what the host knows, and not on the slots of the rows.
struct GroupedConfig {
  bool is_aligned;   // otherwise the general kernels
  bool shrink_sm90;  // shrink is the kernel for compute capability 9.0
  bool expand_sm90;  // so is expand, which needs join
  int shrink_tiles;  // rank tiles of a warp of shrink
  int shrink_blocks, max_passes, max_split;
  GroupedRanks ranks;
  int expand_blocks, h_values;
  int tile_outputs;  // of one work item of expand
  friend bool operator==(const GroupedConfig&, const GroupedConfig&) = default;
};

struct GroupedLaunch {
  GroupedConfig config;
  int device;  // the current one
  cudaStream_t stream;
};

/// Shrink: portable, and for compute capability 9.0 with the same bits. T: dtype of the weights, x
/// and y.
template <class T>
void launch_grouped_shrink(const GroupedParams& p, const GroupedLaunch& launch);
template <class T>
void launch_grouped_shrink_sm90(const GroupedParams& p, const GroupedLaunch& launch);
/// Shrink for any alignment and layout.
template <class T>
void launch_grouped_shrink_general(const GroupedParams& p, const GroupedLaunch& launch);
/// Between shrink and the streaming expand, or another kernel that multiplies with B: adds the
/// parts up to h.
template <class T>
void launch_grouped_join(const GroupedParams& p, const GroupedLaunch& launch);
/// Expand: the streaming kernel for 9.0 reads joined h, the portable one adds the parts up itself.
template <class T>
void launch_grouped_expand_sm90(const GroupedParams& p, const GroupedLaunch& launch);
template <class T>
void launch_grouped_expand(const GroupedParams& p, const GroupedLaunch& launch);
/// Expand for any alignment, layout and dtype of y.
template <class T>
void launch_grouped_expand_general(const GroupedParams& p, const GroupedLaunch& launch);
/// The second half of lora_shrink: y (+)= scale * h.
void launch_grouped_sum(const GroupedParams& p, const GroupedLaunch& launch);

}  // namespace heddle::cuda::lora
