#pragma once

#include "cuda/memory_cuda.h"
#include "cuda/mma_cuda.h"

#include "ops/lora/device/params.h"

namespace heddle::cuda::lora {

constexpr unsigned kAllLanes = 0xffffffffu;
// Sums of one row tile lie this far apart in shared memory: no two lanes of a warp meet in a bank.
constexpr int kRowSumStride = 20;
constexpr int kProductTileRows = 8;  // rows of the input in one product
constexpr int kProductTiles = kRowTileRows / kProductTileRows;
constexpr int kHBlockRanks = 32;            // ranks of one HBlock
constexpr int kHSteps = kHBlockRanks / 16;  // products of 16 ranks
constexpr int kWideRanks = 64;              // ranks of B in a slot, of adapters with more than 16
constexpr int kBlockRanks = kSumRanks;      // ranks of h in shared memory

constexpr int kSlots = 3;   // items on their way from memory
constexpr int kBatch = 32;  // items that are described at once

/// What a warp copies ahead for one item, and no other warp reads. Copies take whole lines of 128 bytes, 8 lanes a line, and
/// products read other lanes' parts; so vectors of 16 bytes are exchanged where two lanes would meet in a bank.
struct alignas(128) StagingSlot {
  uint4 weights[128];
  union {
    uint4 rows[64];    // shrink: of x
    uint4 old[2][32];  // expand: of y, of either half, each lane its own
  };
};

/// Sums over the 64 features of each warp: of 16 ranks and up to 16 rows.
using WarpSums = float[kBlockWarps][kProductTiles][kProductTileRows * kRowSumStride];

/// Of lane (g, q) for one block of ranks and tile of rows: hi of its first two ranks, of its others, lo, lo.
using HBlock = uint4[kHSteps][kProductTiles][32];

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

/// Rows of partials of a row tile: those of its first 16 ranks, then of the next.
struct PartialRows {
  int first, num_rows;
  uint32_t row_reciprocal;
};

/// n / d, where reciprocal = ceil(2^32 / d) modulo 2^32 and n d < 2^32.
__device__ inline int divide(int n, uint32_t reciprocal) {
  return reciprocal == 0 ? n : static_cast<int>(__umulhi(static_cast<uint32_t>(n), reciprocal));
}

/// Which items of num a block has: begin, begin + step, ... below end; those of all blocks differ by one at most.
struct BlockRange {
  int begin, end, step = 1;

  __device__ explicit BlockRange(int begin) : begin(begin), end(begin + 1) {}
  /// Consecutive ones.
  __device__ BlockRange(int num, uint32_t block_reciprocal) {
    const int block = static_cast<int>(blockIdx.x);
    const int each = divide(num, block_reciprocal);
    const int more = num - each * static_cast<int>(gridDim.x);
    begin = block * each + min(block, more);
    end = begin + each + (block < more);
  }
  /// Every grid-th.
  [[nodiscard]] static __device__ BlockRange strided(int num) {
    BlockRange range(static_cast<int>(blockIdx.x));
    range.end = num;
    range.step = static_cast<int>(gridDim.x);
    return range;
  }
  /// Whether one that was asked for before `range` was known begins where it does, or there is nothing to begin.
  [[nodiscard]] __device__ bool starts_like(const BlockRange& range) const {
    return begin == range.begin || range.begin >= range.end;
  }
};

/// data is null where the adapter does not touch the slice.
__device__ inline LoraWeight read_weight(const WeightAddresses& a, int slot, int slice) {
  if (a.kind == WeightAddresses::kEntries) {
    LoraWeight w = reinterpret_cast<const LoraWeight*>(a.base)[slot * a.slot_stride + slice];
    w.rank = min(w.rank, a.max_rank);
    return w;
  }
  LoraWeight w{nullptr, a.max_rank, 1.0f, a.row_stride};
  const auto* address = a.kind == WeightAddresses::kPointers
                            ? reinterpret_cast<const std::byte*>(
                                  reinterpret_cast<const int64_t*>(a.base)[slot * a.slot_stride])
                            : a.base + slot * a.slot_stride;
  if (address != nullptr) w.data = address + a.offset;
  return w;
}

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

/// Elements [0, min(8, n)) of a row whose elements lie k_stride apart, zeros behind them; all are asked for at once.
template <class T>
__device__ uint4 gather_8(const T* p, int64_t k_stride, int n) {
  const auto* from = reinterpret_cast<const uint16_t*>(p);
  uint32_t v[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) v[i] = i < n ? from[i * k_stride] : 0;
  return {v[0] | v[1] << 16, v[2] | v[3] << 16, v[4] | v[5] << 16, v[6] | v[7] << 16};
}

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

__device__ inline uint32_t word(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

constexpr float kNoSum = -0.0f;  // v + kNoSum is v, whatever v is

/// Row of partials of (slice, chunk, row of a tile); each has 16 values.
__device__ inline int partial_row(const SiteParams& p, int slice, int chunk, int row) {
  return (slice * p.num_chunks + chunk) * p.plan->num_partials + row;
}

}  // namespace heddle::cuda::lora
