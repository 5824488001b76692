#pragma once

#include <cstdint>

#include "cuda/convert_cuda.h"

#include "ops/linear_site/call/output_tile_cuda.h"
#include "ops/linear_site/decode/decode_params_cuda.h"

namespace heddle::cuda::linear_site {

/// y of some neighbouring outputs of a row: sum + bias + factor * delta, each in f32, rounded once.
/// delta: null where the row has no adapter here.
template <class T>
__device__ void finish_outputs(const DecodeParams& p, const Tile& tile, int row, int column,
                               float (&sum)[4], const float* delta, float factor) {
  constexpr int kNum = 4;
  const DecodeSlice& slice = p.slices[tile.slice];
  const int output = tile.first_output + column;
#pragma unroll
  for (int i = 0; i < kNum; ++i) {
    if (column + i >= tile.width) break;
    if (slice.bias != nullptr) sum[i] += widen(static_cast<const T*>(slice.bias)[output + i]);
    if (delta != nullptr) sum[i] = __fmaf_rn(factor, delta[i], sum[i]);
  }
  const int64_t at = row * slice.y_stride + output;
  if (p.y_dtype == DType::kFloat32) {
    auto* y = static_cast<float*>(slice.y) + at;
#pragma unroll
    for (int i = 0; i < kNum; ++i) {
      if (column + i < tile.width) y[i] = sum[i];
    }
    return;
  }
  auto* y = static_cast<T*>(slice.y) + at;
  if (column + kNum <= tile.width && reinterpret_cast<uintptr_t>(y) % (2 * kNum) == 0) {
    *reinterpret_cast<uint2*>(y) = {narrow_two<T>({sum[0], sum[1]}),
                                    narrow_two<T>({sum[2], sum[3]})};
    return;
  }
#pragma unroll
  for (int i = 0; i < kNum; ++i) {
    if (column + i < tile.width) y[i] = narrow<T>(sum[i]);
  }
}

}  // namespace heddle::cuda::linear_site
