#pragma once

#include <cstdint>

#include "core/math.h"

// How batch_decode cuts its work on a GPU, as far as bits depend on it. The host must know, since
// queries that read their keys together have to be cut alike.
namespace heddle::cuda::attention {

/// Keys that a warp takes at a time, and of codes, which are half as long.
inline constexpr int kTileKeys = 16, kCodeTileKeys = 32;
inline constexpr int kDecodeRowTile = 8;  // rows of q in a product of the tensor cores
inline constexpr int kDecodeWarps = 4;    // of a block

/// A sequence is cut into segments. How long they are follows from the number of keys that it
/// shows, and from nothing else, so that a row's bits do not depend on the batch. There are at most
/// kMaxSegments, each a multiple of a tile for each warp of a block. A segment has a fixed cost
/// besides its keys, so it has kMinSegmentKeys at least; a sequence of up to kShortKeys is cut
/// shorter, so that a few such sequences keep a chip busy.
inline constexpr int kMaxSegments = 16;
inline constexpr int kMinSegmentKeys = 256;
inline constexpr int kShortKeys = 1024, kMinShortSegmentKeys = 128;

/// The first key that a query with kv_len keys sees, and the tile that has it, with which its first
/// segment begins.
[[nodiscard]] constexpr int first_seen_key(int kv_len, int window_left) {
  const int hidden = kv_len - 1 - window_left;
  return window_left >= 0 && hidden > 0 ? hidden : 0;
}
[[nodiscard]] constexpr int first_tile_of(int first_key) {
  return first_key / kTileKeys * kTileKeys;
}

/// Keys of a segment, of `length` keys from the first tile on. `multiple`: of keys, a tile for each
/// warp.
[[nodiscard]] constexpr int segment_keys(int length, int multiple) {
  const int shortest = length > kShortKeys ? kMinSegmentKeys : kMinShortSegmentKeys;
  const int part = ceil_div(length, kMaxSegments);
  return round_up(part > shortest ? part : shortest, multiple);
}

/// Queries of one sequence that read its keys together, at most.
inline constexpr int kMaxBundle = 16;

/// Rows of q that share their keys in a block of the kernel: heads of one query, of which there may
/// be more than one unit has, or all of a bundle.
[[nodiscard]] constexpr int decode_rows(int head_dim, int group_size, int max_bundle = 1) {
  const int rows = group_size * max_bundle;
  if (head_dim > 128 || rows <= 8) return 8;
  return head_dim <= 64 || rows <= 16 || max_bundle == 1 ? 16 : 32;
}
/// Queries of the largest bundle for these heads, 1 to kMaxBundle. Of codes, and of larger heads,
/// each query is alone.
[[nodiscard]] constexpr int max_decode_bundle(int head_dim, int group_size, bool has_codes) {
  const int queries = has_codes || head_dim > 128 ? 1 : (head_dim <= 64 ? 16 : 32) / group_size;
  return queries < 1 ? 1 : queries < kMaxBundle ? queries : kMaxBundle;
}

}  // namespace heddle::cuda::attention
