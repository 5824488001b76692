#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/divide.h"
#include "cuda/fault.h"
#include "cuda/index.h"

#include "heddle/ops/lora.h"

#include "core/math.h"

namespace heddle::cuda::lora {

// The arithmetic of LoRA on the GPU is the same in every kernel, for every batch and grid. That is
// why all routes have the same bits. One value of h = A x is summed like this:
//
//   x, A   |  chunk 0  |  chunk 1  | ... |  chunk 8  |  chunk 9  | ...      512 features each
//             /  |  \                                                         64 features a warp:
//          w0 w1 .. w7                                                       tensor cores, f32
//            w0 + w1 + ... + w7                                              in this order, f32
//
//   chain 0 = chunk 0 + chunk 8 + chunk 16 + ...      chain j = chunk j + chunk j + 8 + ..., f32
//   h = ((c0 + c1) + (c2 + c3)) + ((c4 + c5) + (c6 + c7))      of the eight chains, f32
//
// Then y += B h. Tensor cores take no f32, so h is split into two values of the weights' dtype,
// hi = T(h) and lo = T(h - hi). Both are multiplied with B, and the products are added in f32.
//
// Lane (g, q) of a warp means g = lane / 4 (0 to 7) and q = lane % 4, as cuda/mma_cuda.h numbers
// them.
inline constexpr int kBlockThreads = 256;
inline constexpr int kBlockWarps = kBlockThreads / 32;
inline constexpr int kChunkFeatures = 512;
inline constexpr int kChains = 8;
inline constexpr int kTileRanks = 16;  // ranks of one work item of shrink
// Outputs of one work item of expand. Where there are many items, an item has twice as many.
inline constexpr int kTileOutputs = 256;
// Ranks of one work item of the kernel that only sums what lora_shrink needs.
inline constexpr int kSumRanks = 128;
inline constexpr int kRowTileRows = 16;  // rows of one adapter that share a work item
inline constexpr int kWindowRows = 256;  // rows of one launch
inline constexpr int kMaxSlices = 4;     // of one launch
// A product takes 16 ranks, which is a step. Adapters with more than 16 ranks load two steps at
// once.
inline constexpr int kHPairRanks = 32;

/// Up to 16 rows of one adapter. An adapter of rank 40 needs three rank tiles for them, which are
/// the tiles [first_tile, first_tile + num_tiles) of the plan.
struct RowTile {
  int32_t slot;
  int16_t num_rows, num_tiles;
  int32_t first_tile;
  Reciprocal row_reciprocal;  // of num_rows
  int32_t first_partial;  // row of the partial sums: the rows of all rank tiles before, added up
  int32_t padding[3];
  int16_t rows[kRowTileRows];
};

/// 16 ranks of an adapter for the rows of one row tile: what a work item of shrink computes.
struct RankTile {
  int32_t slot;
  int16_t num_rows, tile;  // ranks [16 tile, 16 tile + 16)
  int32_t first_partial;   // as in RowTile
  int32_t padding;
  int16_t rows[kRowTileRows];  // of the row tile
};
static_assert(sizeof(RowTile) == 64 && sizeof(RankTile) == 48);

/// How the rows of a window (up to 256) are grouped by adapter. plan_windows writes it once a step,
/// and the launches of all sites read it. Example: five rows with slots 3 7 3 - 7 become two row
/// tiles, {slot 3, rows 0 2} and {slot 7, rows 1 4}; row 3 has no adapter and is in neither.
struct WindowPlan {
  int32_t num_row_tiles, num_tiles, num_partials;
  uint32_t tag;  // of the batch, see plan_tag(); bit 0: row tiles differ in num_tiles
  RowTile row_tiles[kWindowRows];
  RankTile tiles[1];  // in memory [rows of the window * rank tiles of max_rank]
};

/// The lowest bit of a tag is the plan's own.
inline constexpr uint32_t kMixedBit = 1;

/// Bytes of one window's plan.
[[nodiscard]] constexpr size_t window_plan_bytes(int64_t rows, int64_t max_rank) {
  const int64_t tiles = rows * ceil_div(max_rank, kTileRanks);
  return round_up(offsetof(WindowPlan, tiles) + size_t(tiles) * sizeof(RankTile), size_t{256});
}

/// Which slot each row of a batch uses.
struct BatchRows {
  int32_t num_slots, num_segments;
  ConstIndexVector slot_ids, seg_starts;
  ConstIndexVector seg_stops;  // behind the last row of each, or with has_lengths their rows
  ConstIndexVector seg_slots;
  bool has_lengths;

  /// Behind the last row of a segment that begins at `start`.
  [[nodiscard]] constexpr int64_t end(int segment, int64_t start) const {
    const int64_t stop = seg_stops.at(segment);
    return !has_lengths
               ? stop
               : static_cast<int64_t>(static_cast<uint64_t>(start) + static_cast<uint64_t>(stop));
  }
};
[[nodiscard]] inline BatchRows batch_rows(const LoraBatch& batch, int32_t num_slots) {
  const bool has_lengths{batch.seg_lens};
  return {.num_slots = num_slots,
          .num_segments = batch.seg_starts ? static_cast<int32_t>(batch.seg_starts.size(0)) : 0,
          .slot_ids = ConstIndexVector(batch.slot_ids),
          .seg_starts = ConstIndexVector(batch.seg_starts),
          .seg_stops = ConstIndexVector(has_lengths ? batch.seg_lens : batch.seg_ends),
          .seg_slots = ConstIndexVector(batch.seg_slots),
          .has_lengths = has_lengths};
}

struct PlanParams {
  std::byte* plans;  // of each window
  size_t plan_bytes;
  std::byte* grouped;  // the plan of all rows
  int64_t num_tokens;
  int32_t num_windows;  // 0: no plans of windows
  int32_t window_rows, max_rank;
  uint32_t tag;  // goes into the plan
  BatchRows rows;
  /// The largest rank of a slot at any site, or absent: max_rank for all.
  ConstIndexVector slot_ranks;
};

/// Groups the rows of each window by adapter, one block a window.
void plan_windows(const PlanParams& p, cudaStream_t stream);

/// LoraTable as a kernel reads it: where the weight of (slot, slice) lies.
struct WeightAddresses {
  enum Kind : int32_t { kEntries, kPointers, kStack };
  const std::byte* base;  // entries of the first slice, pointers, or stack
  int64_t slot_stride;    // LoraWeights, pointers, or bytes
  int64_t offset;         // bytes from a pointer, or from the slot's part of the stack
  int64_t row_stride;     // elements; that of an entry is its own
  int32_t max_rank;
  Kind kind;
};

struct SliceParams {
  void* y;           // the window's first row, the slice's first column
  int64_t y_stride;  // elements
  int32_t width;     // out_features; of shrink the columns of y
  // Work items of this slice and those before, of one row tile; [1]: items twice as large.
  int32_t end[2];
};

/// One launch: rows of a window, up to kMaxSlices slices of a site.
struct SiteParams {
  const WindowPlan* plan;
  uint32_t plan_tag;  // that the plan has if it is of this batch
  int32_t num_rows;   // of y that the launch may write
  FaultRecord* faults;
  const void* input;     // x or h: the window's first row
  int64_t input_stride;  // elements
  int64_t in_features;
  WeightAddresses a, b;
  int32_t num_slices, num_chunks, items_per_row_tile[2];
  int32_t last_tile;  // that the plan has memory for
  int32_t max_rank;   // the smaller one of the tables
  Reciprocal chunk_reciprocal, slice_reciprocal, row_tile_reciprocal[2], block_reciprocal;
  float scale;
  const float* row_scale;  // of the window's rows, or nullptr
  float* partials;         // [slice][chunk][row of a tile][16]; null where the input is h
  SliceParams slices[kMaxSlices];
  DType input_dtype, y_dtype;
  bool accumulate, is_transposed_a, is_transposed_b, is_input_aligned;
};

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
