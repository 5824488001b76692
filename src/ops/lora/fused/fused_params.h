#pragma once

#include <cstdint>

#include "cuda/divide.h"
#include "cuda/fault.h"

#include "heddle/core/dtype.h"

#include "ops/lora_device/weight_addresses.h"
#include "ops/lora_device/window_plan.h"

namespace heddle::cuda::lora {

struct FusedSlice {
  void* y;  // the window's first row, the slice's first column
  int32_t y_stride, width;
};

/// Both halves of a lora_apply, which adds to y, in one launch; what a block needs first stands
/// first, since each 64 bytes come from memory at their first use.
struct FusedParams {
  uint64_t* arrivals;  // blocks that began, 16 bits, below the number of launches
  const WindowPlan* plan;
  const LoraWeight *a, *b;     // entries of the first slice, where all is aligned
  int32_t a_stride, b_stride;  // from slot to slot
  int32_t num_slices, num_chunks, items_per_row_tile[2];
  Reciprocal chunk_reciprocal, slice_reciprocal, row_tile_reciprocal[2], block_reciprocal;
  int32_t end[2][kMaxSlices - 1];  // as in SliceParams, of all slices but the last
  int32_t last_tile;
  const void* input;
  int32_t input_stride, in_features;
  int32_t max_rank;
  float scale;
  void* partials;  // FlaggedWord[slice][chunk][row of a tile][16]
  const float* row_scale;
  uint32_t spin_limit;  // polls for another block's sums before a block makes them itself
  uint32_t plan_tag;    // that the plan has if it is of this batch
  FusedSlice slices[kMaxSlices];
  FaultRecord* faults;
  int32_t num_rows;  // of all windows
};
static_assert(sizeof(FusedParams) == 232);

/// The same of anything, and several windows; a and b are not used.
struct FusedGeneralParams : FusedParams {
  WeightAddresses a_at, b_at;
  int64_t window_plan_bytes, window_words;  // from one to the next, of the plan and of FlaggedWords
  DType y_dtype;
  bool is_transposed_a, is_transposed_b;
  bool one_item_per_block;  // no block has more than one unit of either half
};

struct FusedLaunch {
  bool is_aligned;          // all that is loaded and stored, for vectors
  bool has_rank_above_16;   // some adapter has more than 16 ranks
  bool one_item_per_block;  // no block has more than one unit of either half
  int num_blocks;

  bool operator==(const FusedLaunch&) const = default;
};
inline constexpr int kFusedBlocksPerSm = 2;  // of a multiprocessor

template <class T>
void launch_fused_aligned(const FusedParams& p, const FusedLaunch& launch, cudaStream_t stream);
/// Each window has num_blocks blocks; `device` is the current one.
template <class T>
void launch_fused_general(const FusedGeneralParams& p, int num_blocks, int num_windows, int device,
                          cudaStream_t stream);

}  // namespace heddle::cuda::lora
