#pragma once

#include "cuda/rotary.h"

#include "ops/attention/attention_decode_work_cuda.h"

namespace heddle::cuda {

/// How one instance of the decode kernel is laid out, for heads of up to kDim elements and kRowTiles * 8 rows of q that share their
/// keys. The warps of a block take the tiles of a segment in turn. Each keeps its own on the way, keys and values of a tile as two
/// parts of a ring of its own, so that warps wait for each other only where a segment ends.
///
/// Keys that are rotated inside become sums of two values of their dtype, and so do queries.
template <int kElements, int kTiles, bool kRotates_>
struct DecodeShape {
  static constexpr int kDim = kElements, kRowTiles = kTiles;
  static constexpr bool kRotates = kRotates_;
  static constexpr int kRowTile = kDecodeRowTile;
  static constexpr int kRows = kRowTiles * kRowTile;
  static constexpr int kWarps = 4;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kBlocksPerSm = kDecodeBlocksPerSm;
  static constexpr int kParts = kDim == 256 ? 2 : kDim == 128 ? 3 : 5;
  static constexpr int kRowBytes = 2 * kDim;
  static constexpr int kPartBytes = kTileKeys * kRowBytes;
  static constexpr int kGroups = kDim / 16 / kWarps;  // of 16 elements of a row that a warp merges
  /// The sums of a warp, f32, fit into the part that it has read last.
  static_assert(kRowTile * kDim * 4 == kPartBytes);
};

template <class Shape>
struct DecodeShared {
  std::byte ring[Shape::kWarps][Shape::kParts][Shape::kPartBytes];
  std::byte q[2][Shape::kRows * Shape::kRowBytes];  // of a run and the next
  /// Where keys rotate: what q lacks to its rotated values, and the frequencies of the pairs.
  std::byte q_rest[Shape::kRotates ? Shape::kRows * Shape::kRowBytes : 16];
  Turns frequency[Shape::kRotates ? Shape::kDim / 2 : 1];
  float4 states[Shape::kWarps][32];  // of the rows of a lane
  uint32_t sums[Shape::kWarps];      // where the warp's sums lie in the ring
  uint32_t is_last;
  WorkShare<Shape::kWarps> work;
};

}  // namespace heddle::cuda
