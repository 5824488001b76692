#pragma once

#include "cuda/rotary_cuda.h"

#include "ops/attention/decode/schedule_cuda.h"

namespace heddle::cuda::attention::decode {

/// How one instance of the decode kernel is laid out: for heads of up to kDim elements, and
/// kRowTiles * 8 rows of q that share their keys. Each warp has a ring of kStages parts, keys or
/// values of one tile each, so that warps wait for each other only where a segment ends. Keys that
/// rotate inside become tf32, or sums of two values of their dtype, and so do queries: see
/// rope_scores_cuda.h. A tile of codes has twice the keys, so that a part has as many bytes, and
/// the scales after them: see code_tile_cuda.h.
template <int kElements, int kTiles, bool kRotates_, bool kCodes_>
struct DecodeShape {
  static constexpr int kDim = kElements, kRowTiles = kTiles;
  static constexpr bool kRotates = kRotates_, kCodes = kCodes_;
  static_assert(!kRotates || !kCodes);
  static constexpr bool kHasBundles = !kRotates && !kCodes && kDim <= 128;
  static constexpr int kRowTile = kDecodeRowTile;
  static constexpr int kRows = kRowTiles * kRowTile;
  static constexpr int kWarps = kDecodeWarps;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kBlocksPerSm = kDecodeBlocksPerSm;
  static constexpr int kStages = kDim == 256 ? 2 : kDim == 128 ? 3 : 5;
  static constexpr int kRowBytes = 2 * kDim;  // of q
  static constexpr int kKeys = kCodes ? kCodeTileKeys : kTileKeys;
  static constexpr int kElementBytes = kCodes ? 1 : 2, kKeyBytes = kElementBytes * kDim;
  static constexpr int kScalesAt = kKeys * kKeyBytes;  // in a part
  static constexpr int kStageBytes = kScalesAt + (kCodes ? kKeys * int{sizeof(float)} : 0);
  static constexpr int kGroups = kDim / 16 / kWarps;  // of 16 elements, that a warp merges
  static constexpr int kPairs = kRotates ? kDim / 2 : 1;
  static constexpr bool kHasRoomForTf32 = kDim <= 128;  // for rows of q in tf32
  static constexpr int kRotatedBytes = !kRotates         ? 16
                                       : kHasRoomForTf32 ? kRows * (kDim + 8) * 4
                                                         : kRows * kRowBytes;
  /// The sums of a warp, in f32, fit into one part of its ring.
  static_assert(kRowTile * kDim * 4 == kScalesAt);
};

inline constexpr int kHalfTile = kTileKeys / 2;

/// Rotations from the first key of half a tile to each of its keys: [8 keys][pair]. 8 more pairs
/// keep rows apart by an odd number of 64 bytes, so that lanes of two keys do not meet in a bank.
template <class Shape>
using InTileRotations = CosSin[Shape::kRotates ? kHalfTile : 1][Shape::kPairs + 8];

/// Scratch of a warp: rotations of its tile inside a segment, states of rows where the segment
/// ends.
template <class Shape>
union WarpScratch {
  float4 states[32];                       // [lane]: RowStates
  CosSin tile_rotation[2][Shape::kPairs];  // [half]: of its first key
};

template <class Shape>
struct DecodeShared {
  std::byte ring[Shape::kWarps][Shape::kStages][Shape::kStageBytes];  // part: [kKeys][kDim]
  std::byte q[2][Shape::kRows * Shape::kRowBytes];  // [this run, the next][row][kDim]
  /// Where keys rotate: [row][kDim + 8] tf32, or [row][kDim] of what rounding q took off.
  alignas(16) std::byte rotated_q[Shape::kRotatedBytes];
  Turns frequency[Shape::kPairs];
  alignas(16) InTileRotations<Shape> in_tile;
  WarpScratch<Shape> scratch[Shape::kWarps];
  uint32_t sums[Shape::kWarps];  // [warp]: offset of its sums in the ring
  uint32_t is_last;
  Schedule<Shape::kWarps, Shape::kWarps * Shape::kKeys> work;
};

}  // namespace heddle::cuda::attention::decode
