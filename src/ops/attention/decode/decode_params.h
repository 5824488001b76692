#pragma once

#include "core/math.h"
#include "ops/attention/device/params.h"

namespace heddle::cuda::attention {

/// Keys that a warp takes at a time, and of codes, which are half as long.
inline constexpr int kTileKeys = 16, kCodeTileKeys = 32;

/// A sequence is cut into segments. How long they are follows from the number of keys that it
/// shows, and from nothing else, so that a row's bits do not depend on the batch. There are at most
/// kMaxSegments, each a multiple of a tile for each warp of a block. A segment has a fixed cost
/// besides its keys, so it has kMinSegmentKeys at least; a sequence of up to kShortKeys is cut
/// shorter, so that a few such sequences keep a chip busy.
inline constexpr int kMaxSegments = 16;
inline constexpr int kMinSegmentKeys = 256;
inline constexpr int kShortKeys = 1024, kMinShortSegmentKeys = 128;

/// Costs count tiles of keys, in 32 bits: 2^32 tiles are 17 TB of keys and values of 128 elements.
/// This is what the beginning and the end of a segment cost. It was found on an H200, with one
/// sequence of 32768 keys among 63 others.
inline constexpr uint32_t kSegmentCost = 9;

inline constexpr int kDecodeRowTile = 8;      // rows of q in a product of the tensor cores
inline constexpr int kDecodeWarps = 4;        // of a block
inline constexpr int kDecodeBlocksPerSm = 2;  // that run at the same time

/// Rows of q that share their keys in a block of the kernel for these heads.
[[nodiscard]] constexpr int decode_rows(int head_dim, int group_size) {
  return head_dim > 128 || group_size <= 8 ? 8 : 16;
}
/// Pairs of rows in a row tile whose states blocks leave for each other.
[[nodiscard]] constexpr int decode_row_pairs(int group_size) {
  return ceil_div(group_size < kDecodeRowTile ? group_size : kDecodeRowTile, 2);
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
  FastDivisor by_kv_heads;
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
