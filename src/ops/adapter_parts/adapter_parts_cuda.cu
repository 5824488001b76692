#include <algorithm>

#include "cuda/begin_early_cuda.h"
#include "cuda/convert_cuda.h"
#include "cuda/early_launch.h"
#include "cuda/index.h"
#include "cuda/warp.h"

#include "core/math.h"
#include "ops/adapter_parts/adapter_parts_kernels.h"

namespace heddle::cuda::adapter_parts {
namespace {

constexpr int kThreads = 256;
constexpr int kElements = 4;  // of a thread, kThreads apart
constexpr int64_t kMaxGridY = 65535;

/// A slice as the kernel reads it.
struct AffineParams {
  float* y;
  const LoraWeight* entries;
  ConstIndexVector slots, starts;
  const float* pair_scales;
  int64_t y_stride, width, num_slots, num_slices, num_pairs, max_pairs;
  float scale;
};

// Grids of kernels on rows: (rows, parts of a row). A thread has the elements `thread` of its
// part, and those gridDim.y parts further on.

template <class Element>
__device__ void for_elements(int64_t width, const Element& element) {
  constexpr int64_t kBlockElements = kThreads * kElements;
  for (int64_t part = blockIdx.y; part * kBlockElements < width; part += gridDim.y) {
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
      const int64_t i = part * kBlockElements + e * kThreads + threadIdx.x;
      if (i < width) element(i);
    }
  }
}

template <auto kKernel, class... Params>
void launch_on_rows(const ExecContext& ctx, int64_t num_rows, int64_t width,
                    const Params&... params) {
  const int64_t parts = std::min(ceil_div(width, int64_t{kThreads * kElements}), kMaxGridY);
  launch_early<kKernel>(ctx, dim3(static_cast<unsigned>(num_rows), static_cast<unsigned>(parts)),
                        kThreads, params...);
}

/// A thread takes a pair after the other, so that the elements it has see them in order.
__global__ void __launch_bounds__(kThreads) affine_kernel(const __grid_constant__ AffineParams p) {
  begin_early(p);
  const int64_t row = blockIdx.x;
  int64_t begin = row, end = row + 1;
  if (p.starts.is_given()) {
    begin = min(max(p.starts.at(row), int64_t{0}), p.num_pairs);
    end = min(min(p.starts.at(row + 1), p.num_pairs), begin + p.max_pairs);
  }
  float* const y = p.y + row * p.y_stride;
  for (int64_t pair = begin; pair < end; ++pair) {
    const int64_t slot = p.slots.at(pair);
    if (slot < 0 || slot >= p.num_slots) continue;
    const LoraWeight weight = p.entries[slot * p.num_slices];
    if (weight.data == nullptr) continue;
    const auto* const factor = static_cast<const float*>(weight.data);
    const float* const offset = weight.rank < 2 ? nullptr : factor + weight.row_stride;
    const float scale = p.scale * (p.pair_scales == nullptr ? 1.0f : p.pair_scales[pair]);
    for_elements(p.width, [&](int64_t i) {
      const float product = __fmul_rn(y[i], factor[i]);
      y[i] = offset == nullptr ? product : __fadd_rn(product, __fmul_rn(scale, offset[i]));
    });
  }
}

/// The place of an id among ascending ones, or -1.
__device__ int64_t find(const OwnRows& own, int32_t id) {
  int64_t low = 0, high = own.count;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (own.ids[middle] < id) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < own.count && own.ids[low] == id ? low : -1;
}

__global__ void __launch_bounds__(kThreads)
    replace_rows_kernel(const __grid_constant__ TokenRows p, const __grid_constant__ OwnRows own) {
  begin_early(p);
  const int64_t row = blockIdx.x, found = find(own, p.token_ids[row]);
  if (found < 0) return;
  float* const y = p.y + row * p.y_stride;
  const float* const from = own.rows + found * own.stride;
  for_elements(p.width, [&](int64_t i) { y[i] = from[i]; });
}

__global__ void __launch_bounds__(kThreads)
    low_rank_rows_kernel(const __grid_constant__ TokenRows p,
                         const __grid_constant__ LowRankRows pair) {
  begin_early(p);
  const int64_t row = blockIdx.x, token = p.token_ids[row];
  if (token < 0 || token >= pair.vocab_size) return;
  float* const y = p.y + row * p.y_stride;
  const float* const a = pair.a + token * pair.a_stride;
  for_elements(p.width, [&](int64_t i) {
    float sum = y[i];
    for (int64_t r = 0; r < pair.rank; ++r) {
      const float weight = __fmul_rn(pair.scale, a[r]);
      sum = __fadd_rn(sum, __fmul_rn(weight, pair.b[r * pair.b_stride + i]));
    }
    y[i] = pair.factor == nullptr ? sum : __fmul_rn(sum, pair.factor[i]);
  });
}

/// A block has a row: threads sum the elements thread, thread + kThreads, ..., and the sums of the
/// two halves of the block are added until one is left.
__global__ void __launch_bounds__(kThreads)
    row_lengths_kernel(const __grid_constant__ RowLengths p) {
  begin_early(p);
  __shared__ double sums[kThreads];
  const float* const row = p.x + blockIdx.x * p.x_stride;
  double sum = 0;
  for (int64_t k = threadIdx.x; k < p.width; k += kThreads) sum += double{row[k]} * row[k];
  sums[threadIdx.x] = sum;
  for (unsigned step = kThreads / 2; step > 0; step /= 2) {
    __syncthreads();
    if (threadIdx.x < step) sums[threadIdx.x] += sums[threadIdx.x + step];
  }
  if (threadIdx.x != 0) return;
  p.y[blockIdx.x] = static_cast<float>(double{p.y[blockIdx.x]} / sqrt(sums[0]));
}

/// A warp has a product. Lane l sums the features l, l + 32, ...; then lanes that are 16, 8, 4, 2
/// and 1 apart are added.
template <class T>
__global__ void __launch_bounds__(kThreads)
    linear_at_kernel(const __grid_constant__ OwnProducts p, const __grid_constant__ OwnRows own) {
  begin_early(p);
  constexpr int kWarps = kThreads / kWarpSize;
  const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
  const int64_t row = blockIdx.x;
  const T* const x = reinterpret_cast<const T*>(p.x) + row * p.x_stride;
  for (int64_t j = int64_t{blockIdx.y} * kWarps + warp; j < own.count;
       j += int64_t{gridDim.y} * kWarps) {
    const int32_t id = own.ids[j];
    if (id < 0 || id >= p.out_features) continue;
    const float* const weights = own.rows + j * own.stride;
    float sum = 0.0f;
    for (int64_t k = lane; k < p.in_features; k += kWarpSize) {
      sum = __fadd_rn(sum, __fmul_rn(weights[k], widen(x[k])));
    }
#pragma unroll
    for (int step = kWarpSize / 2; step > 0; step /= 2) {
      sum = __fadd_rn(sum, __shfl_xor_sync(kAllLanes, sum, step));
    }
    if (lane == 0) p.y[row * p.y_stride + id] = sum;
  }
}

template <class T>
void launch_linear_at(const ExecContext& ctx, const OwnProducts& p, const OwnRows& own) {
  const int64_t blocks = std::min(ceil_div(own.count, int64_t{kThreads / kWarpSize}), kMaxGridY);
  launch_early<linear_at_kernel<T>>(
      ctx, dim3(static_cast<unsigned>(p.num_tokens), static_cast<unsigned>(blocks)), kThreads, p,
      own);
}

}  // namespace

void apply_affines(const ExecContext& ctx, const AffineSlice& slice) {
  const AffineParams params{.y = slice.y,
                            .entries = slice.entries,
                            .slots = ConstIndexVector(slice.slots),
                            .starts = ConstIndexVector(slice.starts),
                            .pair_scales = slice.pair_scales,
                            .y_stride = slice.y_stride,
                            .width = slice.width,
                            .num_slots = slice.num_slots,
                            .num_slices = slice.num_slices,
                            .num_pairs = slice.num_pairs,
                            .max_pairs = slice.max_pairs,
                            .scale = slice.scale};
  launch_on_rows<affine_kernel>(ctx, slice.num_tokens, slice.width, params);
}

void replace_rows(const ExecContext& ctx, const TokenRows& rows, const OwnRows& own) {
  launch_on_rows<replace_rows_kernel>(ctx, rows.num_tokens, rows.width, rows, own);
}

void add_low_rank_rows(const ExecContext& ctx, const TokenRows& rows, const LowRankRows& pair) {
  launch_on_rows<low_rank_rows_kernel>(ctx, rows.num_tokens, rows.width, rows, pair);
}

void divide_by_lengths(const ExecContext& ctx, const RowLengths& rows) {
  launch_early<row_lengths_kernel>(ctx, dim3(static_cast<unsigned>(rows.num_rows)), kThreads, rows);
}

void linear_at(const ExecContext& ctx, const OwnProducts& products, const OwnRows& own,
               DType x_dtype) {
  if (x_dtype == DType::kFloat32) return launch_linear_at<float>(ctx, products, own);
  if (x_dtype == DType::kFloat16) return launch_linear_at<__half>(ctx, products, own);
  launch_linear_at<__nv_bfloat16>(ctx, products, own);
}

}  // namespace heddle::cuda::adapter_parts
