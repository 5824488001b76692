#pragma once

#include <algorithm>
#include <cstdint>
#include <ostream>

#include "cuda/warp.h"

#include "core/math.h"

// A row is cut into chunks, one if a block's registers hold it, and a chunk into vectors of 8
// elements, of which vector c belongs to lane c mod n of n lanes. The cut follows from the width
// alone, and so does the order of the sums, whatever the dtypes, the alignment and the chip are:
// each lane adds the squares of its vectors in four sums (element i to sum i mod 4), these as (s0 +
// s2) + (s1 + s3), the lanes of a warp as a tree, warps as trees of eight, and chunks one after the
// other.

namespace heddle::cuda::norm {

inline constexpr int kVectorElements = 8;  // elements that a lane moves at once
inline constexpr int kFewLanes = 256, kMaxLanes = 512, kMaxChunks = 16;
inline constexpr int kMaxWarps = kMaxLanes / kWarpSize,
                     kGroup = 8;           // warps that are added as a tree
inline constexpr int kFew = 2, kMany = 4;  // vectors of a lane that are in registers at a time

/// The widest rows that one vector a lane of one warp, four of one warp, two of a block of 256, and
/// four of one of 512 hold.
inline constexpr int64_t kOneVectorWidth = kWarpSize * kVectorElements;
inline constexpr int64_t kWarpWidth = kWarpSize * kMany * kVectorElements;
inline constexpr int64_t kFewWidth = kFewLanes * kFew * kVectorElements;
inline constexpr int64_t kBlockWidth = kMaxLanes * kMany * kVectorElements;

/// How a row is shared among threads: one chunk, or as many blocks as hold it, a power of two; and
/// the lanes of a chunk.
struct RowCut {
  int num_chunks, lanes;
  int64_t chunk_width;  // elements, of the last chunk fewer
  friend constexpr bool operator==(const RowCut&, const RowCut&) = default;
};
constexpr RowCut cut_of(int64_t width) {
  const int64_t vectors = ceil_div(width, kVectorElements);
  RowCut cut{.num_chunks = 1, .lanes = kWarpSize, .chunk_width = width};
  if (vectors <= 8) {
    cut.lanes = 8;
  } else if (vectors <= 16) {
    cut.lanes = 16;
  } else if (width > kWarpWidth) {
    while (cut.num_chunks < kMaxChunks && width > cut.num_chunks * kBlockWidth) cut.num_chunks *= 2;
    const int64_t chunk_pieces = ceil_div(vectors, cut.num_chunks);
    if (cut.num_chunks > 1) cut.chunk_width = chunk_pieces * kVectorElements;
    const int64_t warps = ceil_div(chunk_pieces, kWarpSize * (width <= kFewWidth ? kFew : kMany));
    cut.lanes = static_cast<int>(std::min<int64_t>(kMaxLanes, warps * kWarpSize));
  }
  return cut;
}
static_assert(cut_of(64) == RowCut{1, 8, 64} && cut_of(256) == RowCut{1, 32, 256});
static_assert(cut_of(kWarpWidth).lanes == 32 && cut_of(kWarpWidth + 1).lanes == 96);
static_assert(cut_of(4096) == RowCut{1, 256, 4096} && cut_of(8192) == RowCut{1, 256, 8192});
static_assert(cut_of(4097).lanes == 160 && cut_of(16384) == RowCut{1, 512, 16384});
static_assert(cut_of(16385) == RowCut{2, 288, 8200} && cut_of(262144) == RowCut{16, 512, 16384});

/// The kernels of rms_norm: how many rows a block has, and vectors of a row that a lane keeps in
/// registers.
enum class RmsNormKernel {
  kSeveralRows1,  // up to kOneVectorWidth
  kSeveralRows4,  // up to kWarpWidth
  kOneRow2,       // up to kFewWidth
  kOneRow4,       // up to kBlockWidth
  kWide,          // any width: the block goes over its row twice or three times
};
struct RmsNormChoice {
  RmsNormKernel kernel;
  bool has_vectors;  // vectors are read and written as vectors of 16 bytes, else element by element

  friend constexpr bool operator==(const RmsNormChoice&, const RmsNormChoice&) = default;
  friend std::ostream& operator<<(std::ostream& out, const RmsNormChoice& choice) {
    constexpr const char* kNames[] = {"several_rows_1", "several_rows_4", "one_row_2", "one_row_4",
                                      "wide"};
    return out << kNames[static_cast<int>(choice.kernel)]
               << (choice.has_vectors ? " vectors" : " elements");
  }
};

/// is_aligned: rows and weight are whole vectors at multiples of 16 bytes, rows of f8e4m3 of 8.
/// Each kernel is compiled for vectors; for anything else two are enough, since they are slow by
/// their loads.
[[nodiscard]] constexpr RmsNormChoice select_rms_norm_kernel(int64_t width, bool is_aligned) {
  using enum RmsNormKernel;
  if (!is_aligned) return {width <= kWarpWidth ? kSeveralRows4 : kWide, false};
  if (width <= kOneVectorWidth) return {kSeveralRows1, true};
  if (width <= kWarpWidth) return {kSeveralRows4, true};
  if (width <= kFewWidth) return {kOneRow2, true};
  return {width <= kBlockWidth ? kOneRow4 : kWide, true};
}

}  // namespace heddle::cuda::norm
