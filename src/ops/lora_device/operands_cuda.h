#pragma once

#include "cuda/divide.h"
#include "cuda/memory_cuda.h"

#include "ops/lora_device/sums.h"
#include "ops/lora_device/weight_addresses.h"

namespace heddle::cuda::lora {

constexpr unsigned kAllLanes = 0xffffffffu;
// The products of decode have weights as their 16 x 16 operand and rows as their 16 x 8 operand, so
// a row tile of 16 rows is two products.
constexpr int kProductTileRows = 8;
constexpr int kProductTiles = kRowTileRows / kProductTileRows;
// Where a sum begins. v + -0 is v for every v, while -0 + 0 would be +0: a sum that begins with +0
// could not keep the sign of a zero.
constexpr float kNoSum = -0.0f;

/// The work items of a block: begin, begin + step, ... below end. Of 10 items, 4 blocks have 3, 3,
/// 2, 2.
struct BlockRange {
  int begin, end, step = 1;

  /// One item.
  __device__ explicit BlockRange(int begin) : begin(begin), end(begin + 1) {}
  /// Consecutive items: block 0 has 0 1 2, block 1 has 3 4 5, block 2 has 6 7, block 3 has 8 9.
  __device__ BlockRange(int num, Reciprocal block_reciprocal) {
    const int block = static_cast<int>(blockIdx.x);
    const int each = divide(num, block_reciprocal);
    const int more = num - each * static_cast<int>(gridDim.x);
    begin = block * each + min(block, more);
    end = begin + each + (block < more);
  }
  /// Every gridDim.x-th item: block 0 has 0 4 8, block 1 has 1 5 9, block 2 has 2 6, block 3 has 3
  /// 7.
  [[nodiscard]] static __device__ BlockRange strided(int num) {
    BlockRange range(static_cast<int>(blockIdx.x));
    range.end = num;
    range.step = static_cast<int>(gridDim.x);
    return range;
  }
  /// For a speculative start: a block loads its first item before it can know its range. Whether
  /// that item was the right one, which it is, too, where the range is empty.
  [[nodiscard]] __device__ bool starts_like(const BlockRange& range) const {
    return begin == range.begin || range.begin >= range.end;
  }
};

/// The weight of (slot, slice). Its data is null where the adapter does not touch the slice.
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

/// Elements [0, min(8, n)) of a row whose elements lie k_stride apart, and zeros behind them, in
/// one vector. The loads do not wait for each other.
template <class T>
__device__ uint4 gather_8(const T* p, int64_t k_stride, int n) {
  const auto* from = reinterpret_cast<const uint16_t*>(p);
  uint32_t v[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) v[i] = i < n ? from[i * k_stride] : 0;
  return {v[0] | v[1] << 16, v[2] | v[3] << 16, v[4] | v[5] << 16, v[6] | v[7] << 16};
}

/// Word i of four; a constant i costs no instruction.
__device__ inline uint32_t word(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

}  // namespace heddle::cuda::lora
