#pragma once

#include "core/math.h"
#include "ops/attention/call/decode_cut.h"
#include "ops/attention/device/params.h"

namespace heddle::cuda::attention {

/// Costs count tiles of keys, in 32 bits: 2^32 tiles are 17 TB of keys and values of 128 elements.
/// This is what the beginning and the end of a segment cost. It was found on an H200, with one
/// sequence of 32768 keys among 63 others.
inline constexpr uint32_t kSegmentCost = 9;

inline constexpr int kDecodeBlocksPerSm = 2;  // that run at the same time

/// Pairs of rows in a row tile whose states blocks leave for each other.
[[nodiscard]] constexpr int decode_row_pairs(int rows) {
  return ceil_div(rows < kDecodeRowTile ? rows : kDecodeRowTile, 2);
}

/// What the decode kernel takes. Where it rotates, the frequencies follow, and the scales of codes.
struct DecodeLaunchParams : AttentionCallParams {
  /// States of segments that another block merges, not initialised; nullptr: a block computes all
  /// segments of its rows.
  float* partials = nullptr;  // AttentionChoice::partial_floats
  /// Zero before and after every kernel, one for each block.
  uint32_t* counters = nullptr;
  uint32_t blocks_per_sm = 1;  // that take neighbouring parts of the work; divides the grid
  uint32_t cluster_size = 1;   // divides the grid, too
  uint32_t num_units = 0;      // of a sequence: kv heads, times the parts that a group is taken in
  int32_t unit_rows = 0;       // of a unit, at most
  int32_t partial_pairs = 0;   // decode_row_pairs()
  FastDivisor by_kv_heads, by_group_size;
  /// Queries [bundle_indptr[i], bundle_indptr[i + 1]) are bundle i, and num_seqs counts bundles;
  /// absent: each query is one. max_bundle: queries of one, at most.
  ConstIndexVector bundle_indptr;
  int32_t max_bundle = 1;
  /// See AttentionChoice.
  bool can_start_on_stale_table = false;
  bool has_whole_tiles = false;
};
struct RotatingDecodeParams : DecodeLaunchParams {
  RotaryFrequencies rope;
};
/// Of a cache of f8e4m3.
struct CodeDecodeParams : DecodeLaunchParams {
  KvScaleParams scales;
  bool is_bfloat16 = false;  // q and o, else they are f16
};

}  // namespace heddle::cuda::attention
