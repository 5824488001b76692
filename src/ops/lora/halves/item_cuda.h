#pragma once

#include "ops/lora/halves/own_plan_cuda.h"
#include "ops/lora_device/foreign_plan_cuda.h"
#include "ops/lora_device/rank_vectors_cuda.h"
#include "ops/lora_device/shrink_tile_cuda.h"

namespace heddle::cuda::lora {

// The work items of a half, and what a block has of them in shared memory. Each warp
// copies what it multiplies itself, in slots of its own, so warps do not wait for each other:
//
//   slot 0   slot 1   slot 2      a warp multiplies what one slot holds while copies into the
//   multiply copies   copies      other two are in flight

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
  OwnPlan own_plan;                      // where there is no other
  StagingSlot slots[kSlots][kBlockWarps];
};
static_assert(sizeof(HalfShared::slots) >= sizeof(OwnPlanScratch));

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

/// Puts min(8, n) elements of row m from k on, then zeros, into a vector of a slot.
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

/// Rows of the partial sums of a slice and chunk.
__device__ inline int num_partials(const HalfParams& p) {
  return p.plan != nullptr ? p.plan->num_partials : p.num_rows * p.num_rank_tiles;
}

/// The row of the partial sums of (slice, chunk, row of the rank tiles). A row has 16 values.
__device__ inline int partial_row(const HalfParams& p, int slice, int chunk, int row) {
  return (slice * p.num_chunks + chunk) * num_partials(p) + row;
}

/// A row tile of either kind of plan.
struct TileOfPlan {
  int32_t slot, num_rows, num_tiles, first_partial;
  Reciprocal row_reciprocal;
  int4 rows[2];

  __device__ explicit TileOfPlan(const RowTile& tile)
      : slot(tile.slot),
        num_rows(tile.num_rows),
        num_tiles(tile.num_tiles),
        first_partial(tile.first_partial),
        row_reciprocal(tile.row_reciprocal) {
    const int4* from = reinterpret_cast<const int4*>(tile.rows);
    rows[0] = from[0];
    rows[1] = from[1];
  }
  /// Tile `index` of a block's own plan.
  __device__ TileOfPlan(const HalfParams& p, const OwnPlan& plan, int index)
      : num_tiles(p.num_rank_tiles) {
    const OwnTile tile = plan.tiles[index];
    slot = tile.slot;
    num_rows = tile.num_rows;
    first_partial = tile.first * num_tiles;
    row_reciprocal = Reciprocal(static_cast<uint32_t>(num_rows));
    int words[kRowTileRows / 2];
#pragma unroll
    for (int i = 0; i < kRowTileRows / 2; ++i) {
      const uint8_t* two = &plan.rows[tile.first + 2 * i];
      words[i] = two[0] | two[1] << 16;
    }
    rows[0] = {words[0], words[1], words[2], words[3]};
    rows[1] = {words[4], words[5], words[6], words[7]};
  }
};

[[nodiscard]] __device__ inline TileOfPlan row_tile_of(const HalfParams& p, const OwnPlan& own,
                                                       int index) {
  return p.plan != nullptr ? TileOfPlan(p.plan->row_tiles[index]) : TileOfPlan(p, own, index);
}

/// The row tiles of a launch. All threads call it.
[[nodiscard]] __device__ inline WindowHead head_of_plan(const HalfParams& p, OwnPlan& own,
                                                        void* scratch) {
  if (p.plan != nullptr) return WindowHead(*p.plan, p.plan_tag);
  auto& s = *static_cast<OwnPlanScratch*>(scratch);
  return WindowHead::of_own(make_own_plan(p, own, s), p.num_rank_tiles);
}

}  // namespace heddle::cuda::lora
