#include <algorithm>

#include "cuda/begin_early_cuda.h"
#include "cuda/convert_cuda.h"
#include "cuda/early_launch.h"

#include "core/math.h"
#include "ops/elementwise/elementwise_kernels.h"

namespace heddle::cuda::elementwise {
namespace {

constexpr int kThreads = 256;
/// Of a sum: few, so that its columns are spread over many multiprocessors.
constexpr int kSumThreads = 64, kRowsAtOnce = 16;

struct Sum {
  __device__ float operator()(float x, float y, float) const { return x + y; }
};
struct Product {
  __device__ float operator()(float x, float, float factor) const { return x * factor; }
};
struct Capped {
  __device__ float operator()(float x, float, float cap) const {
    return cap * tanhf(__fdiv_rn(x, cap));
  }
};
struct Operand {
  __device__ float operator()(float, float y, float) const { return y; }
};

/// result = T(Op(result, operand, number)). A thread has an element, and those gridDim.y blocks
/// further on; rows are in grid.x.
template <class T, class Op>
__global__ void __launch_bounds__(kThreads)
    elementwise_kernel(const __grid_constant__ ElementwiseParams p) {
  const int64_t row = blockIdx.x;
  trigger_dependents();
  begin_early(p);
  T* const result = reinterpret_cast<T*>(p.result) + row * p.result_stride;
  const float* const operand = p.operand + row * p.operand_stride;
  for (int64_t i = int64_t{blockIdx.y} * kThreads + threadIdx.x; i < p.width;
       i += int64_t{gridDim.y} * kThreads) {
    const float x = sizeof(T) == sizeof(float) ? widen(result[i]) : 0.0f;
    const float y = p.operand != nullptr ? operand[i] : 0.0f;
    result[i] = narrow<T>(Op()(x, y, p.number));
  }
}

template <class T, class Op>
void launch(const ExecContext& ctx, const ElementwiseParams& p) {
  if (p.num_tokens == 0 || p.width == 0) return;
  constexpr int64_t kMaxGridY = 65535;
  cudaLaunchConfig_t config{};
  config.gridDim =
      dim3(static_cast<unsigned>(p.num_tokens),
           static_cast<unsigned>(std::min(ceil_div(p.width, int64_t{kThreads}), kMaxGridY)));
  config.blockDim = dim3(kThreads);
  config.stream = ctx.stream;
  launch_early<elementwise_kernel<T, Op>>(ctx.device.index, config, p);
}

/// A thread has a column. The rows of a group are loaded before the first of them is added, so that
/// their loads overlap.
template <class T>
__global__ void __launch_bounds__(kSumThreads)
    sum_rows_kernel(const __grid_constant__ SumRowsParams p) {
  trigger_dependents();
  begin_early(p);
  const int64_t column = int64_t{blockIdx.x} * kSumThreads + threadIdx.x;
  if (column >= p.width) return;
  const T* const x = reinterpret_cast<const T*>(p.x) + column;
  float sum = p.from_zero ? 0.0f : p.sum[column];
  int64_t row = 0;
  for (; row + kRowsAtOnce <= p.num_rows; row += kRowsAtOnce) {
    float group[kRowsAtOnce];
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i) group[i] = widen(x[(row + i) * p.stride]);
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i) sum += group[i];
  }
  for (; row < p.num_rows; ++row) sum += widen(x[row * p.stride]);
  p.sum[column] = sum;
}

template <class T>
void launch_sum(const ExecContext& ctx, const SumRowsParams& p) {
  if (p.width == 0) return;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(ceil_div(p.width, int64_t{kSumThreads})));
  config.blockDim = dim3(kSumThreads);
  config.stream = ctx.stream;
  launch_early<sum_rows_kernel<T>>(ctx.device.index, config, p);
}

}  // namespace

void sum_rows(const ExecContext& ctx, const SumRowsParams& p, DType dtype) {
  if (dtype == DType::kFloat32) return launch_sum<float>(ctx, p);
  if (dtype == DType::kFloat16) return launch_sum<__half>(ctx, p);
  launch_sum<__nv_bfloat16>(ctx, p);
}

void add(const ExecContext& ctx, const ElementwiseParams& p) { launch<float, Sum>(ctx, p); }
void scale(const ExecContext& ctx, const ElementwiseParams& p) { launch<float, Product>(ctx, p); }
void soft_cap(const ExecContext& ctx, const ElementwiseParams& p) { launch<float, Capped>(ctx, p); }

void round_to(const ExecContext& ctx, const ElementwiseParams& p, DType dtype) {
  if (dtype == DType::kFloat16) return launch<__half, Operand>(ctx, p);
  launch<__nv_bfloat16, Operand>(ctx, p);
}

}  // namespace heddle::cuda::elementwise
