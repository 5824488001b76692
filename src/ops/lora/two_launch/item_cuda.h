#pragma once

#include "ops/lora/device/rank_vectors_cuda.h"
#include "ops/lora/device/shrink_tile_cuda.h"

namespace heddle::cuda::lora {

constexpr int kBlockRanks = kSumRanks;  // ranks of h in shared memory
constexpr int kSlots = 3;               // items on their way from memory
constexpr int kBatch = 32;              // items that are described at once

/// What a warp copies ahead for one item, and no other warp reads. Copies take whole lines of 128 bytes, 8 lanes a line, and
/// products read other lanes' parts; so vectors of 16 bytes are exchanged where two lanes would meet in a bank.
struct alignas(128) StagingSlot {
  uint4 weights[128];
  union {
    uint4 rows[64];    // shrink: of x
    uint4 old[2][32];  // expand: of y, of either half, each lane its own
  };
};

/// A work item, as one thread describes it for all. Shrink: 16 ranks times 512 features of A, times the rows of a row tile.
/// Expand: 256 or 512 outputs of B times all ranks (of shrink alone: 128 ranks of the sum).
struct WorkItem {
  // Element (first rank, first feature) of A, (first output, rank 0) of B; null where there is nothing to read.
  const void* weight;
  int64_t row_stride;    // elements
  int32_t rank;          // ranks of this item; 0: the adapter does not touch the slice
  int32_t slice, first;  // first feature, output or rank
  int32_t left;          // features or outputs from there on
  // Row of partials: shrink: of the item's first row; expand: of chunk 0, its first rank and row.
  int32_t partial;
  int32_t num_rows, row_tile;
  uint32_t row_reciprocal;
  float scale;
  int32_t num_halves;  // of 256 outputs
  int32_t padding[2];
  int16_t rows[kRowTileRows];
};

static_assert(sizeof(WorkItem) == 96 && offsetof(WorkItem, rows) % 16 == 0);

struct HalfShared {
  WorkItem items[kBatch];
  WarpSums sums;
  HBlock h[kBlockRanks / kHBlockRanks];
  StagingSlot slots[kSlots][kBlockWarps];
};

static_assert(sizeof(HalfShared) <= 99 * 1024);  // what every chip from sm_80 on gives a block

/// A matrix as a work item reads it: element (m, k) at data + m * m_stride + k * k_stride. kAligned: k_stride is 1, and
/// offsets fit 32 bits.
template <class T, bool kAligned>
struct Operand {
  using Stride = std::conditional_t<kAligned, int32_t, int64_t>;
  const T* data;
  Stride m_stride, k_stride;

  __device__ Operand(const void* data, int64_t row_stride, bool is_transposed)
      : data(static_cast<const T*>(data)),
        m_stride(!kAligned && is_transposed ? 1 : static_cast<Stride>(row_stride)),
        k_stride(!kAligned && is_transposed ? static_cast<Stride>(row_stride) : 1) {}
  [[nodiscard]] const __device__ T* at(int m, int k) const {
    return kAligned ? data + (m * m_stride + k) : data + (m * m_stride + k * k_stride);
  }
  /// Whether `bytes` bytes can be loaded at once from multiples of them on.
  [[nodiscard]] __device__ bool is_in_lines(unsigned bytes) const {
    return k_stride == 1 && ((reinterpret_cast<uintptr_t>(data) |
                              static_cast<uintptr_t>(m_stride * int64_t{sizeof(T)})) &
                             (bytes - 1)) == 0;
  }
};

/// Puts n elements of row m from k on, at most 8 and zeros behind them, into a slot; kAligned: all is aligned.
template <class T, bool kAligned>
__device__ void fetch_8(uint4* to, const Operand<T, kAligned>& w, int m, int k, int n,
                        bool is_in_lines) {
  if constexpr (kAligned) {
    copy_async_16(to, n > 0 ? w.at(m, k) : w.data, max(0, min(n, 8)) * int{sizeof(T)});
  } else if (n >= 8 && is_in_lines) {
    copy_async_16(to, w.at(m, k), 16);
  } else {
    *to = n > 0 ? gather_8(w.at(m, k), w.k_stride, n) : uint4{0, 0, 0, 0};
  }
}

/// Row of partials of (slice, chunk, row of a tile); each has 16 values.
__device__ inline int partial_row(const SiteParams& p, int slice, int chunk, int row) {
  return (slice * p.num_chunks + chunk) * p.plan->num_partials + row;
}

}  // namespace heddle::cuda::lora
