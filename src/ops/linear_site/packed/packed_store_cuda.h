#pragma once

#include "cuda/convert_cuda.h"

#include "ops/linear_site/packed/packed_params.h"

// What the kernels for packed weights share: where outputs belong, and how they are stored.

namespace heddle::cuda::linear_site {

/// A tile: which slice it is of, and its first output there.
struct PackedTile {
  int slice = 0, first_output;

  __device__ PackedTile(const PackedParams& p, int tile, int tile_outputs) {
#pragma unroll
    for (int s = 0; s < kMaxPackedSlices - 1; ++s) {
      slice += s < p.num_slices - 1 && tile >= p.slices[s].end_tile;
    }
    first_output = (tile - (slice == 0 ? 0 : p.slices[slice - 1].end_tile)) * tile_outputs;
  }
};

/// Stores four outputs of a row, of a slice's `output` on.
template <class T>
__device__ void store_packed(const PackedParams& p, int of_slice, int row, int output,
                             const float4& of) {
  const PackedSlice& slice = p.slices[of_slice];
  const int num = min(4, slice.width - output);
  float v[4] = {of.x, of.y, of.z, of.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (slice.bias != nullptr && i < num)
      v[i] += widen(static_cast<const T*>(slice.bias)[output + i]);
  }
  const int64_t at = row * slice.y_stride + output;
  if (p.y_dtype == DType::kFloat32) {
    auto* const y = static_cast<float*>(slice.y) + at;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i < num) y[i] = v[i];
    }
    return;
  }
  auto* const y = static_cast<T*>(slice.y) + at;
  if (num == 4 && reinterpret_cast<uintptr_t>(y) % 8 == 0) {
    *reinterpret_cast<uint2*>(y) = {narrow_two<T>({v[0], v[1]}), narrow_two<T>({v[2], v[3]})};
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (i < num) y[i] = narrow<T>(v[i]);
  }
}

}  // namespace heddle::cuda::linear_site
