#pragma once

#include "ops/lora/device/rank_vectors_cuda.h"
#include "ops/lora/device/shrink_tile_cuda.h"

namespace heddle::cuda::lora {

// The work items of the two-launch route, and what a block has of them in shared memory. Each warp
// copies what it multiplies itself, in slots of its own, so warps do not wait for each other:
//
//   slot 0   slot 1   slot 2      a warp multiplies what one slot holds while copies into the
//   multiply copies   copies      other two are under way

constexpr int kBlockRanks = kSumRanks;  // ranks of h in shared memory
constexpr int kSlots = 3;               // slots of a warp
constexpr int kBatch = 32;              // items that are described at the same time, a thread each

/// What a warp copies ahead, and no other warp reads. Eight lanes copy a line of 128 bytes, but
/// products read vectors of several lines at the same time. So vectors are stored in a swapped
/// order where lanes would conflict in a bank: see line_vector(), narrow_vector(), wide_vector().
struct alignas(128) StagingSlot {
  uint4 weights[128];  // shrink: A, [16 ranks][8 vectors]; expand: B
  union {
    uint4 rows[64];    // shrink: x, [8 rows][8 vectors]
    uint4 old[2][32];  // expand: y, [half][lane]
  };
};

/// A work item, which one thread describes for the whole block. All are for the rows of a row tile:
///   shrink   16 ranks x 512 features of A
///   expand   256 or 512 outputs of B x all ranks
///   sum      128 ranks (lora_shrink)
struct WorkItem {
  // Element (first rank, first feature) of A, or (first output, rank 0) of B. Null: nothing to
  // read.
  const void* weight;
  int64_t row_stride;    // elements
  int32_t rank;          // ranks of this item. 0: the adapter does not touch the slice
  int32_t slice, first;  // first feature, output or rank
  int32_t left;          // features or outputs from `first` on
  // Row of the partial sums. Shrink: where its first row goes. Others: chunk 0 of its first rank
  // and row.
  int32_t partial;
  int32_t num_rows, row_tile;
  Reciprocal row_reciprocal;
  float scale;
  int32_t num_halves;  // of 256 outputs
  int32_t padding[2];
  int16_t rows[kRowTileRows];
};

static_assert(sizeof(WorkItem) == 96 && offsetof(WorkItem, rows) % 16 == 0);

struct HalfShared {
  WorkItem items[kBatch];
  WarpSums sums;                         // of shrink
  HBlock h[kBlockRanks / kHBlockRanks];  // of expand: 128 ranks of 16 rows
  StagingSlot slots[kSlots][kBlockWarps];
};

static_assert(sizeof(HalfShared) <= 99 * 1024);  // what every chip from sm_80 on gives a block

/// A matrix as a work item reads it: element (m, k) lies at data + m * m_stride + k * k_stride.
/// kAligned: k_stride is 1, and offsets fit 32 bits.
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
  /// Whether k is contiguous and all rows begin at multiples of `bytes`.
  [[nodiscard]] __device__ bool is_in_lines(unsigned bytes) const {
    return k_stride == 1 && ((reinterpret_cast<uintptr_t>(data) |
                              static_cast<uintptr_t>(m_stride * int64_t{sizeof(T)})) &
                             (bytes - 1)) == 0;
  }
};

/// Puts min(8, n) elements of row m from k on, and zeros behind them, into a vector of a slot.
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

/// The row of the partial sums of (slice, chunk, row of the rank tiles). A row has 16 values.
__device__ inline int partial_row(const SiteParams& p, int slice, int chunk, int row) {
  return (slice * p.num_chunks + chunk) * p.plan->num_partials + row;
}

}  // namespace heddle::cuda::lora
