#pragma once

#include "ops/lora/halves/item_cuda.h"
#include "ops/lora_device/outputs_cuda.h"

namespace heddle::cuda::lora {

/// Starts to copy y of the rows 2 q and 2 q + 1, at this lane's four outputs of a half. For aligned
/// y.
template <class T>
__device__ void fetch_old(const HalfParams& p, const WorkItem& item, int half, uint4* to) {
  const SliceParams& slice = p.slices[item.slice];
  const Operand<T, true> y(static_cast<const T*>(slice.y) + item.first, slice.y_stride, false);
  const int n = output_of_lane(half), q = threadIdx.x % 4;
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const bool in_range = p.accumulate && 2 * q + j < item.num_rows && n < item.left;
    copy_async_8(reinterpret_cast<uint2*>(to) + j,
                 in_range ? y.at(item.rows[2 * q + j], n) : y.data, in_range);
  }
}

/// The sums of a lane, which has four outputs: sum[8 rows][pair][..] are the outputs 2 pair and 2
/// pair + 1 of the rows 2 q and 2 q + 1.
using ExpandSums = float[kProductTiles][2][4];

template <class Y>
struct alignas(4 * sizeof(Y)) FourOf {
  Y v[4];
};

/// Loads y of row i of the row tile at this lane's four outputs. kAligned: y is of type T.
template <class T, bool kAligned>
__device__ uint4 load_old(const HalfParams& p, const WorkItem& item, int half, int i) {
  const SliceParams& slice = p.slices[item.slice];
  const int n = output_of_lane(half), left = item.left - n;
  uint4 raw{0, 0, 0, 0};
  if (!p.accumulate || i >= item.num_rows || left <= 0) return raw;
  with_type_or<kAligned, T>(p.y_dtype, [&](auto type) {
    using Y = decltype(type);
    const Y* y =
        Operand<Y, kAligned>(static_cast<const Y*>(slice.y) + item.first, slice.y_stride, false)
            .at(item.rows[i], n);
    FourOf<Y> four{};
    if (kAligned || (left >= 4 && reinterpret_cast<uintptr_t>(y) % sizeof(four) == 0)) {
      four = *reinterpret_cast<const FourOf<Y>*>(y);
    } else {
      for (int k = 0; k < 4; ++k) {
        if (k < left) four.v[k] = y[k];
      }
    }
    *reinterpret_cast<FourOf<Y>*>(&raw) = four;
  });
  return raw;
}

/// Adds four sums to four outputs of row i of the row tile.
template <class T, bool kAligned>
__device__ void write_four(const HalfParams& p, const WorkItem& item, int half, int i,
                           const float (&sum)[4], const uint4& old) {
  const SliceParams& slice = p.slices[item.slice];
  const int n = output_of_lane(half), left = item.left - n;
  if (i >= item.num_rows || left <= 0) return;
  const int row = item.rows[i];
  const float factor = p.row_scale != nullptr ? item.scale * p.row_scale[row] : item.scale;
  with_type_or<kAligned, T>(p.y_dtype, [&](auto type) {
    using Y = decltype(type);
    Y* y = const_cast<Y*>(
        Operand<Y, kAligned>(static_cast<const Y*>(slice.y) + item.first, slice.y_stride, false)
            .at(row, n));
    FourOf<Y> four = *reinterpret_cast<const FourOf<Y>*>(&old);
#pragma unroll
    for (int k = 0; k < 4; ++k) four.v[k] = finish(four.v[k], factor, sum[k], p.accumulate);
    if (kAligned || (left >= 4 && reinterpret_cast<uintptr_t>(y) % sizeof(four) == 0)) {
      *reinterpret_cast<FourOf<Y>*>(y) = four;
    } else {
      for (int k = 0; k < 4; ++k) {
        if (k < left) y[k] = four.v[k];
      }
    }
  });
}

/// Adds the sums of a half to y and clears them. Of aligned y, `both` has what the rows 2 q and 2 q
/// + 1 hold.
template <class T, bool kAligned>
__device__ void write_half(const HalfParams& p, const WorkItem& item, int half, int num_tiles,
                           const uint4& both, ExpandSums& sum) {
#pragma unroll
  for (int tile = 0; tile < kProductTiles; ++tile) {
    if (tile >= num_tiles) break;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int i = tile * kProductTileRows + static_cast<int>(threadIdx.x % 4 * 2) + j;
      uint4 old;
      if (kAligned && tile == 0) {
        old = j == 0 ? uint4{both.x, both.y, 0, 0} : uint4{both.z, both.w, 0, 0};
      } else {
        old = load_old<T, kAligned>(p, item, half, i);
      }
      const float four[4] = {sum[tile][0][j], sum[tile][0][2 + j], sum[tile][1][j],
                             sum[tile][1][2 + j]};
      write_four<T, kAligned>(p, item, half, i, four, old);
      sum[tile][0][j] = sum[tile][0][2 + j] = sum[tile][1][j] = sum[tile][1][2 + j] = 0.0f;
    }
  }
}

}  // namespace heddle::cuda::lora
