#pragma once

#include "cuda/rotary.h"

#include "ops/attention/attention_decode_work_cuda.h"

namespace heddle::cuda {

/// How one instance of the decode kernel is laid out, for heads of up to kDim elements and kRowTiles * 8 rows of q that share their
/// keys. The warps of a block take the tiles of a segment in turn. Each keeps its own on the way, keys and values of a tile as two
/// parts of a ring of its own, so that warps wait for each other only where a segment ends.
///
/// Keys that are rotated inside become sums of two values of their dtype, and so do queries. This takes registers, so fewer warps.
template <int kElements, int kTiles, bool kRotates_>
struct DecodeShape {
  static constexpr int kDim = kElements, kRowTiles = kTiles;
  static constexpr bool kRotates = kRotates_;
  static constexpr int kRowTile = 8;
  static constexpr int kRows = kRowTiles * kRowTile;
  static constexpr int kWarps = 4;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kBlocksPerSm = 2;
  static constexpr int kParts = kDim == 256 ? 2 : 5;
  static constexpr int kRowBytes = 2 * kDim;
  static constexpr int kPartBytes = kTileKeys * kRowBytes;
  static constexpr int kQuadsOfRow = kDim / 4;  // groups of four sums
  static constexpr int kQuads =
      (kRowTile * kQuadsOfRow + kThreads - 1) / kThreads;  // of a thread in a row tile
  static constexpr int kMaxRuns = 5;  // 8.6 and 8.9 have 99 KB of shared memory
  /// The sums of a warp, f32, fit into the part that it has read last.
  static_assert(kRowTile * kDim * 4 == kPartBytes);
};

/// Of a row: the maximum of its scores, in units of log2, and the sum of its weights 2^(score - max).
struct RowState {
  float max, sum;
};

template <class Shape>
struct DecodeShared {
  std::byte ring[Shape::kWarps][Shape::kParts][Shape::kPartBytes];
  std::byte q[Shape::kRows * Shape::kRowBytes];
  /// Where keys rotate: what q lacks to its rotated values, and the frequencies of the pairs.
  std::byte q_rest[Shape::kRotates ? Shape::kRows * Shape::kRowBytes : 16];
  Turns frequency[Shape::kRotates ? Shape::kDim / 2 : 1];
  RowState states[Shape::kWarps][Shape::kRowTile];
  uint32_t sums[Shape::kWarps];  // where the warp's sums lie in the ring
  uint32_t is_last;
  WorkList<Shape::kMaxRuns, Shape::kWarps> work;
};

}  // namespace heddle::cuda
