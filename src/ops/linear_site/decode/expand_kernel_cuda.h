#pragma once

#include "cuda/memory_cuda.h"

#include "ops/linear_site/decode/adapter_expand_cuda.h"
#include "ops/linear_site/decode/finish_outputs_cuda.h"

namespace heddle::cuda::linear_site {

// y = products + factor * B h, after products whose kernel has no warps for adapters, and after
// the kernel of A x. The products are f32, and y is rounded once.
//
//   block   a tile of outputs, all rows: looks up plan and tables, adds up h, multiplies B, and
//           puts the products to it

template <class T>
__device__ void add_products(const ExpandParams& e, const Tile& tile, const AdapterShared& s) {
  const DecodeParams& p = e.site;
  constexpr int kQuads = kExpandTileOutputs / 4;
  const float* const products = e.products + e.first_columns[tile.slice] + tile.first_output;
  for (int i = static_cast<int>(threadIdx.x); i < kQuads * p.num_rows; i += kLoraThreads) {
    const int row = i / kQuads, column = i % kQuads * 4;
    const float* const from = products + row * e.products_stride + column;
    float sum[4] = {};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (column + k < tile.width) sum[k] = from[k];
    }
    const RowFactor factor = s.factors[row];
    finish_outputs<T>(p, tile, row, column, sum,
                      factor.is_used ? s.delta + row * s.delta_stride + column : nullptr,
                      factor.value);
  }
}

template <class T>
__global__ void __launch_bounds__(kLoraThreads, 3)
    expand_kernel(const __grid_constant__ ExpandParams e) {
  extern __shared__ __align__(1024) std::byte shared[];
  trigger_dependents();
  const DecodeParams& p = e.site;
  const AdapterShared s = shared_by_adapters(shared, shared_layout(e));
  const AdapterWarp warp(p, s, static_cast<int>(threadIdx.x) / 32);
  Expand<T> expand(warp);
  expand.begin();
  wait_for_predecessor();  // the plan, A x and the products
  const Tile tile(p, static_cast<int>(blockIdx.x), kExpandTileOutputs);
  expand.run(tile.slice, tile.first_output, tile.width);
  __syncthreads();
  add_products<T>(e, tile, s);
}

}  // namespace heddle::cuda::linear_site
