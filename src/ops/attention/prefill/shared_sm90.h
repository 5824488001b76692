#pragma once

// batch_prefill for compute capability 9.0: what lies in shared memory, and who waits for whom.
//
//                full                     full
//   load  --- queries, keys, values --->  attend, two warpgroups of 64 rows each
//         <----------------------------
//                empty
//
// load, a warpgroup, walks the items of its block, and the tiles of an item, ahead of attend. It
// finds the next item while the tiles of this one are on their way.

#include <cstdint>

#include "cuda/sm90/ring_cuda.h"
#include "cuda/sm90/swizzled_rows.h"
#include "cuda/sm90/wgmma_cuda.h"

#include "ops/attention/prefill/tile_cuda.h"

namespace heddle::cuda::attention::prefill {

/// Heads up to kHeadDim elements are taken as kHeadDim, zeros after them.
template <int kHeadDim, bool kHasCodes = false>
struct ShapeSm90 {
  static constexpr bool kGeneral = false, kCodes = kHasCodes;
  static constexpr int kDim = kHeadDim, kColumnBlocks = kDim / 64;
  static constexpr int kGroups = 2, kGroupRows = 64, kRows = kGroups * kGroupRows;
  static constexpr int kKeys = kSm90TileKeys, kStages = kDim == 64 ? 4 : 2, kItems = 3;
  static constexpr int kThreads = 128 * (1 + kGroups);
  static constexpr int kBlockBytes = kKeys * kSwizzledRowBytes;  // 64 elements of all keys
  static constexpr int kTileBytes = kColumnBlocks * kBlockBytes;
  static_assert(kRows == kKeys, "queries lie as keys do");
  /// Places for the codes of a tile: 16 bytes for 8 lanes of each key.
  static constexpr int kCodeBytes = kCodes ? kKeys * 128 : 16;
};

/// Offset of a vector of 8 elements in a tile: blocks of 64 elements, one after the other, whose
/// rows of 128 bytes lie as products of warpgroups take them (wgmma_cuda.h).
template <class S>
__device__ constexpr uint32_t swizzled_offset(int row, int vector) {
  return static_cast<uint32_t>(vector / 8 * S::kBlockBytes + row * kSwizzledRowBytes +
                               ((vector ^ row) & 7) * 16);
}

inline constexpr int kSharedAlignment = kSwizzledBlockBytes;

template <class S>
struct PrefillShared {
  alignas(kSharedAlignment) std::byte queries[S::kTileBytes];
  alignas(kSharedAlignment) std::byte keys[S::kStages][S::kTileBytes],
      values[S::kStages][S::kTileBytes];
  PrefillItem items[S::kItems];
  Ring<S::kItems> item_ring;
  Ring<S::kStages> key_ring, value_ring;
  PhaseBarrier queries_full, queries_empty;
  alignas(16) std::byte codes[2][S::kCodeBytes];  // of keys, of values

  __device__ void init() {
    constexpr int kLoaders = 128, kAttendWarps = 4 * S::kGroups, kOtherLoadWarps = 3;
    for (int i = 0; i < S::kItems; ++i) {
      // Every thread that has written or read arrives: tools that look for races follow a chain of
      // barriers no further.
      item_ring.full[i].init(32);
      item_ring.empty[i].init(32 * (kAttendWarps + kOtherLoadWarps));
    }
    for (int i = 0; i < S::kStages; ++i) {
      key_ring.full[i].init(kLoaders);
      key_ring.empty[i].init(kAttendWarps);
      value_ring.full[i].init(kLoaders);
      value_ring.empty[i].init(kAttendWarps);
    }
    queries_full.init(kLoaders);
    queries_empty.init(kAttendWarps);
  }
};

}  // namespace heddle::cuda::attention::prefill
