#pragma once

#include "ops/lora_device/grouped/output_tile_cuda.h"

namespace heddle::cuda::lora {

// h of a row tile: from the partial sums that shrink wrote (or a tensor, in lora_expand) to hi and
// lo in the order of the products. A quad is four neighbouring ranks of a row, the unit of all of
// this.

/// Vector `index` of a row of joined h lies at index ^ h_swap(), so that eight rows that a warp
/// reads at the same time do not conflict in a bank.
__device__ constexpr int h_swap(int row, int row_vectors) {
  return row_vectors == kHStepVectors ? row / 2 % 4 : row % 8;
}

/// A quad of h: the sum of its parts, in the order of the tree. row: in the plan's order.
__device__ inline float4 load_h(const GroupedParams& p, int slice, int row, int rank, int parts) {
  const float* from = p.partials + int64_t{row} * p.h_width + slice * p.slice_ranks + rank;
  float4 v[kChains];
#pragma unroll
  for (int i = 0; i < kChains; ++i) {
    if (i < parts) v[i] = __ldcg(reinterpret_cast<const float4*>(from + i * p.part_stride));
  }
  const auto join = [&](int num) {
#pragma unroll
    for (int i = 0; i < kChains / 2; ++i) {
      if (i >= num) break;
      const float4 x = v[2 * i], y = v[2 * i + 1];
      v[i] = {x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w};
    }
  };
  if (parts == 8) join(4);
  if (parts >= 4) join(2);
  join(1);
  return v[0];
}

/// A quad of h from a tensor, of which `num` ranks exist. row: of the batch.
__device__ inline float4 load_tensor_h(const SiteParams& site, int64_t row, int rank, int num) {
  float v[4];
  with_type(site.input_dtype, [&](auto type) {
    using U = decltype(type);
    const U* from = static_cast<const U*>(site.input) + row * site.input_stride + rank;
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] = i < num ? widen(from[i]) : 0.0f;
  });
  return {v[0], v[1], v[2], v[3]};
}

/// h[tile][step][hi or lo][lane] = h of the rows [first, first + 16 * tiles) of the row tile, a
/// quad for each thread at a time. All threads call it.
template <class T, int kWarps, bool kIsTensor>
__device__ void make_h(const GroupedParams& p, const ExpandShared& s, int slice, int first,
                       int tiles, int parts, HVector* h) {
  const int steps = num_steps(s.rank), quads = 4 * steps;  // of a row
#pragma unroll 2
  for (int i = static_cast<int>(threadIdx.x); i < tiles * kProductRows * quads; i += kWarps * 32) {
    const int row = i / quads, rank = (i - row * quads) * 4;
    float4 v{0.0f, 0.0f, 0.0f, 0.0f};
    const int num = s.rank - rank;
    if (first + row < s.num_rows && num > 0) {
      const int at = s.first_row + first + row;
      if constexpr (kIsTensor) {
        v = load_tensor_h(p.site, p.plan.rows[at], rank, num);
      } else {
        v = keep_ranks(load_h(p, slice, at, rank, parts), num);
      }
    }
    store_quad<T>(h, steps, s.rank, row, rank, v);
  }
}

}  // namespace heddle::cuda::lora
