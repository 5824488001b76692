#pragma once

#include <algorithm>
#include <string_view>

#include "cuda/begin_early_cuda.h"
#include "cuda/convert_cuda.h"
#include "cuda/early_launch.h"

#include "core/kernel_log.h"
#include "core/math.h"
#include "ops/activation/gated.h"

// The kernel of y = T(f(gate) * up). Each element is computed by itself. Rows are cut into vectors
// of kVec elements, one a thread:
//
//   block (lanes, rows)   256 threads: a piece of one wide row, or up to 256 narrow rows
//   grid.x, grid.y        the next rows, the next pieces
//
// A vector has 16 bytes. Where a tensor does not begin, step or end at multiples of 16 bytes, it is
// one element.

namespace heddle::cuda::activation {

inline constexpr int kGatedThreads = 256, kVectorBytes = 16;

/// Neighbours in a row, moved as one.
template <class T, int kVec>
struct alignas(kVec * sizeof(T)) Neighbours {
  T values[kVec];
};

/// Gate: a functor float -> float without state.
template <class T, class Gate, int kVec>
__global__ void __launch_bounds__(kGatedThreads)
    gated_kernel(const __grid_constant__ GatedParams p) {
  using Vector = Neighbours<T, kVec>;
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const int64_t vectors = p.width / kVec;
  trigger_dependents();
  begin_early(p);
  if (row >= p.num_tokens) return;
  auto* y = reinterpret_cast<Vector*>(p.y + row * p.y_stride);
  const auto* gate = reinterpret_cast<const Vector*>(p.gate + row * p.gate_stride);
  const auto* up = reinterpret_cast<const Vector*>(p.up + row * p.up_stride);
  for (int64_t i = int64_t{blockIdx.y} * blockDim.x + threadIdx.x; i < vectors;
       i += int64_t{gridDim.y} * blockDim.x) {
    const Vector g = gate[i], u = up[i];  // both, before y is written, which may be one of them
    Vector result;
#pragma unroll
    for (int j = 0; j < kVec; ++j) {
      result.values[j] = narrow<T>(Gate()(widen(g.values[j])) * widen(u.values[j]));
    }
    y[i] = result;
  }
}

template <class T, class Gate, int kVec>
void launch_gated(const ExecContext& ctx, const GatedParams& p) {
  constexpr int64_t kMaxGridY = 65535;  // of grid.y
  const int64_t vectors = p.width / kVec, lanes = std::min<int64_t>(vectors, kGatedThreads);
  const int64_t rows = kGatedThreads / lanes, pieces = ceil_div(vectors, lanes);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(ceil_div(p.num_tokens, rows)),
                        static_cast<unsigned>(std::min(pieces, kMaxGridY)));
  config.blockDim = dim3(static_cast<unsigned>(lanes), static_cast<unsigned>(rows));
  config.stream = ctx.stream;
  launch_early<gated_kernel<T, Gate, kVec>>(ctx.device.index, config, p);
}

/// Whether all rows of all tensors are vectors of 16 bytes.
inline bool has_vectors(const GatedParams& p) {
  const int64_t row_bytes = p.width * static_cast<int64_t>(size_of(p.dtype));
  const intptr_t addresses = reinterpret_cast<intptr_t>(p.y) | reinterpret_cast<intptr_t>(p.gate) |
                             reinterpret_cast<intptr_t>(p.up);
  const int64_t strides = p.y_stride | p.gate_stride | p.up_stride;
  return (addresses | strides | row_bytes) % kVectorBytes == 0;
}

/// y = T(Gate(gate) * up) on the stream of the context.
template <class Gate>
void run_gated(const ExecContext& ctx, std::string_view op, const GatedParams& p) {
  if (p.num_tokens == 0 || p.width == 0) return;
  const bool takes_vectors = has_vectors(p);
  log_choice(op, takes_vectors ? "vectors" : "elements");
  const auto of_type = [&]<class T>(T) {
    if (takes_vectors) {
      launch_gated<T, Gate, kVectorBytes / sizeof(T)>(ctx, p);
    } else {
      launch_gated<T, Gate, 1>(ctx, p);
    }
  };
  switch (p.dtype) {
    case DType::kFloat16: return of_type(__half{});
    case DType::kBFloat16: return of_type(__nv_bfloat16{});
    default: return of_type(float{});
  }
}

}  // namespace heddle::cuda::activation
