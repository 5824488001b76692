#pragma once

#include "cuda/memory_cuda.h"
#include "cuda/mma_cuda.h"
#include "ops/lora/lora_cuda_params.h"

namespace heddle::cuda {

constexpr unsigned kAllLanes = 0xffffffffu;
// Sums of one row tile lie this far apart in shared memory: no two lanes of a warp meet in a bank.
constexpr int kRowSumStride = 20;
constexpr int kTileRows = 8;  // rows of u in one product
constexpr int kPartTiles = kLoraPartRows / kTileRows;
constexpr int kRankPiece = 32;  // ranks of h in shared memory at a time, and of B in a slot
constexpr int kPieceSteps = kRankPiece / 16;  // products of 16 ranks

constexpr int kSlotVectors = 6;  // of a thread, 16 bytes each
constexpr int kSlots = 3;        // items on their way from memory

/// What a thread copies ahead for one item, and nobody else reads: [vector][thread].
using LoraSlot = uint4[kSlotVectors][kLoraThreads];

struct LoraShared {
  uint32_t flag;  // of this launch
  float sums[2][kLoraWarps][kPartTiles][kTileRows * kRowSumStride];
  // Of lane (g, q): hi of its first two ranks, of its others, lo, lo.
  uint4 h[2][kPieceSteps][kPartTiles][32];
  LoraSlot slots[kSlots];
};
static_assert(sizeof(LoraShared) <= 99 * 1024);  // what every chip from sm_80 on gives a block

/// n / d, where reciprocal = ceil(2^32 / d) modulo 2^32 and n d < 2^32.
__device__ inline int divide(int n, uint32_t reciprocal) {
  return reciprocal == 0 ? n : static_cast<int>(__umulhi(static_cast<uint32_t>(n), reciprocal));
}

/// data is null where the adapter does not touch the slice.
__device__ inline LoraWeight read_weight(const LoraAddresses& a, int slot, int slice) {
  if (a.kind == LoraAddresses::kEntries) {
    LoraWeight w = reinterpret_cast<const LoraWeight*>(a.base)[slot * a.slot_stride + slice];
    w.rank = min(w.rank, a.max_rank);
    return w;
  }
  LoraWeight w{nullptr, a.max_rank, 1.0f, a.row_stride};
  const auto* address =
      a.kind == LoraAddresses::kPointers
          ? reinterpret_cast<const std::byte*>(
                reinterpret_cast<const int64_t*>(a.base)[slot * a.slot_stride])
          : a.base + slot * a.slot_stride;
  if (address != nullptr) w.data = address + a.offset;
  return w;
}

/// A weight as a work item reads it: element (m, k) at data + m * m_stride + k * k_stride.
template <class T>
struct LoraOperand {
  const T* data;
  int64_t m_stride, k_stride;
  bool in_lines;  // whether rows can be loaded `bytes` at a time

  __device__ LoraOperand(const LoraWeight& w, bool is_transposed, unsigned bytes)
      : data(static_cast<const T*>(w.data)),
        m_stride(is_transposed ? 1 : w.row_stride),
        k_stride(is_transposed ? w.row_stride : 1),
        in_lines(k_stride == 1 && ((reinterpret_cast<uintptr_t>(data) |
                                    static_cast<uintptr_t>(m_stride * int64_t{sizeof(T)})) &
                                   (bytes - 1)) == 0) {}
};

/// Elements [0, min(8, n)) of a row whose elements lie k_stride apart, zeros behind them; n > 0.
template <class T>
__device__ uint4 gather_8(const T* p, int64_t k_stride, int64_t n) {
  uint64_t words[2] = {0, 0};
#pragma unroll 1
  for (int i = 0; i < 8 && i < n; ++i) {
    const uint64_t bits = reinterpret_cast<const uint16_t*>(p)[i * k_stride];
    words[0] |= i < 4 ? bits << 16 * i : 0;
    words[1] |= i < 4 ? 0 : bits << 16 * (i - 4);
  }
  return {static_cast<uint32_t>(words[0]), static_cast<uint32_t>(words[0] >> 32),
          static_cast<uint32_t>(words[1]), static_cast<uint32_t>(words[1] >> 32)};
}

/// Puts n elements of row m from k on, at most 8 and zeros behind them, into a slot; kPlain: all is aligned and n a multiple
/// of 8.
template <bool kPlain, class T>
__device__ void fetch_8(uint4* to, const LoraOperand<T>& w, int64_t m, int64_t k, int64_t n) {
  const T* from = w.data + m * w.m_stride + k * w.k_stride;
  if (kPlain || (n >= 8 && w.in_lines)) {
    copy_async_16(to, n > 0 ? from : w.data, n > 0);
  } else {
    *to = n > 0 ? gather_8(from, w.k_stride, n) : uint4{0, 0, 0, 0};
  }
}

__device__ inline uint32_t word(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

/// Where the partial sum of (slice, chunk, row of a tile) begins: 16 values.
__device__ inline int64_t partial_index(const LoraParams& p, int slice, int chunk, int row) {
  return (int64_t{slice * p.num_chunks + chunk} * p.plan->num_partials + row) * kLoraRankTile;
}

}  // namespace heddle::cuda
