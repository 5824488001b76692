#pragma once

#include "cuda/rotary_cuda.h"

#include "ops/attention/decode/schedule_cuda.h"

namespace heddle::cuda::attention::decode {

/// How one instance of the decode kernel is laid out, for heads of up to kDim elements and kRowTiles * 8 rows of q that share their
/// keys. The warps of a block take the tiles of a segment in turn. Each keeps its own on the way, keys and values of a tile as two
/// parts of a ring of its own, so that warps wait for each other only where a segment ends.
///
/// Keys that are rotated inside become tf32 or sums of two values of their dtype, and so do queries.
template <int kElements, int kTiles, bool kRotates_>
struct DecodeShape {
  static constexpr int kDim = kElements, kRowTiles = kTiles;
  static constexpr bool kRotates = kRotates_;
  static constexpr int kRowTile = kDecodeRowTile;
  static constexpr int kRows = kRowTiles * kRowTile;
  static constexpr int kWarps = kDecodeWarps;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kBlocksPerSm = kDecodeBlocksPerSm;
  static constexpr int kParts = kDim == 256 ? 2 : kDim == 128 ? 3 : 5;
  static constexpr int kRowBytes = 2 * kDim;
  static constexpr int kPartBytes = kTileKeys * kRowBytes;
  static constexpr int kGroups = kDim / 16 / kWarps;  // of 16 elements of a row that a warp merges
  static constexpr int kPairs = kRotates ? kDim / 2 : 1;
  static constexpr bool kHasRoomForTf32 = kDim <= 128;  // of rows of q
  static constexpr int kRotatedBytes = !kRotates         ? 16
                                       : kHasRoomForTf32 ? kRows * (kDim + 8) * 4
                                                         : kRows * kRowBytes;
  /// The sums of a warp, f32, fit into the part that it has read last.
  static_assert(kRowTile * kDim * 4 == kPartBytes);
};

inline constexpr int kHalfTile = kTileKeys / 2;

/// By how much the keys of half a tile turn from its first one on: [key][pair]. Keys are apart by an odd number of 64 bytes, so that the
/// lanes of two do not meet in a bank.
template <class Shape>
using InTileRotations = CosSin[Shape::kRotates ? kHalfTile : 1][Shape::kPairs + 8];

/// What a warp keeps of its tile while it goes through a segment, and of its sums where that ends.
template <class Shape>
union WarpScratch {
  float4 states[32];                       // of the rows of a lane
  CosSin tile_rotation[2][Shape::kPairs];  // the turns of the first key of either half of a tile
};

template <class Shape>
struct DecodeShared {
  std::byte ring[Shape::kWarps][Shape::kParts][Shape::kPartBytes];
  std::byte q[2][Shape::kRows * Shape::kRowBytes];  // of a run and the next
  /// Where keys rotate: rows of q as RotatedScores takes them, or a part of it, and the frequencies of the pairs.
  alignas(16) std::byte rotated_q[Shape::kRotatedBytes];
  Turns frequency[Shape::kPairs];
  alignas(16) InTileRotations<Shape> in_tile;
  WarpScratch<Shape> scratch[Shape::kWarps];
  uint32_t sums[Shape::kWarps];  // where the warp's sums lie in the ring
  uint32_t is_last;
  Schedule<Shape::kWarps> work;
};

}  // namespace heddle::cuda::attention::decode
