#include "cuda/begin_early_cuda.h"
#include "cuda/check.h"
#include "cuda/early_launch.h"
#include "cuda/fault_cuda.h"
#include "cuda/index.h"

#include "heddle/core/error.h"

#include "core/math.h"
#include "ops/linear/unpack/unpack_cuda.h"
#include "ops/linear/unpack/unpack_kernels.h"

namespace heddle::cuda::linear {
namespace {

constexpr int kThreads = 128;
constexpr int64_t kBlockWeights = int64_t{kThreads} * kUnpacked;  // weights of a block, of one row
constexpr int64_t kMaxTokens = (int64_t{1} << 31) - 1;

struct Params {
  void* y;
  int64_t y_stride;  // elements
  const std::byte* weight;
  int64_t group_bytes, in_features, out_features, first_output;
  int64_t num_rows;
  ConstIndexVector ids;  // of embedding
  FaultRecord* faults;
  DType y_dtype;
  WeightType type;
  bool has_vectors;  // 8 elements of y begin at 16 bytes
};

template <class T>
__device__ void store_8(const Params& p, int64_t row, int64_t k, int num,
                        const float (&v)[kUnpacked]) {
  T* const y = static_cast<T*>(p.y) + row * p.y_stride + k;
  if (p.has_vectors && num == kUnpacked) {
    auto* const to = reinterpret_cast<uint4*>(y);
    if constexpr (sizeof(T) == 4) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        reinterpret_cast<float4*>(y)[i] = {v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]};
      }
    } else {
      *to = {narrow_two<T>({v[0], v[1]}), narrow_two<T>({v[2], v[3]}), narrow_two<T>({v[4], v[5]}),
             narrow_two<T>({v[6], v[7]})};
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kUnpacked; ++i) {
    if (i < num) y[i] = narrow<T>(v[i]);
  }
}

/// Elements [k, k + 8) of row `row` of y: those of an output, or zeros where there is none such.
template <WeightType kType>
__device__ void unpack_to(const Params& p, int64_t row, int64_t k, int64_t output) {
  const auto num = static_cast<int>(min(int64_t{kUnpacked}, p.in_features - k));
  float weights[kUnpacked] = {};
  if (output >= 0 && output < p.out_features) {
    const PackedOutput<kType> of{p.weight + output / PackedLayout::kGroup * p.group_bytes,
                                 static_cast<int>(output % PackedLayout::kGroup)};
    of.unpack(k, num, weights);
  }
  with_type(p.y_dtype, [&]<class T>(T) { store_8<T>(p, row, k, num, weights); });
}

// Grid (tokens, parts of a row): a thread has 8 weights.
__global__ void __launch_bounds__(kThreads) embedding_kernel(const __grid_constant__ Params p) {
  begin_early(p);
  const int64_t token = blockIdx.x, id = p.ids.at(token);
  if (threadIdx.x == 0 && blockIdx.y == 0 && (id < 0 || id >= p.out_features)) {
    report_fault(p.faults, "embedding", "token_ids", token, id);
  }
  const int64_t k = blockIdx.y * kBlockWeights + threadIdx.x * kUnpacked;
  if (k >= p.in_features) return;
  with_weight_type(p.type, [&]<WeightType kType>() { unpack_to<kType>(p, token, k, id); });
}

// Grid (parts of a group, groups): 16 neighbouring threads have the outputs of a group, so that a
// warp reads neighbouring words, and writes 32 bytes of each of 16 rows.
__global__ void __launch_bounds__(kThreads) dequantize_kernel(const __grid_constant__ Params p) {
  begin_early(p);
  constexpr int kGroup = PackedLayout::kGroup;
  const auto thread = static_cast<int>(threadIdx.x);
  const int64_t row = int64_t{blockIdx.y} * kGroup + thread % kGroup;
  const int64_t k = blockIdx.x * (kBlockWeights / kGroup) + thread / kGroup * kUnpacked;
  if (row >= p.num_rows || k >= p.in_features) return;
  with_weight_type(p.type,
                   [&]<WeightType kType>() { unpack_to<kType>(p, row, k, p.first_output + row); });
}

// An empty kernel, launched without overlap after what writes weights: later kernels that read
// the weights before they wait for the previous kernel find all of them.
__global__ void end_of_writes_kernel() {}

Params params_of(const ExecContext& ctx, const TensorView& y, const PackedWeight& weight) {
  const auto bits = reinterpret_cast<uintptr_t>(y.raw()) |
                    static_cast<uintptr_t>(y.stride(0)) * size_of(y.dtype());
  return {.y = y.raw(),
          .y_stride = y.stride(0),
          .weight = weight.data,
          .group_bytes = group_bytes(weight.type, weight.in_features),
          .in_features = weight.in_features,
          .out_features = weight.out_features,
          .first_output = 0,
          .num_rows = y.size(0),
          .ids = {},
          .faults = ctx.faults,
          .y_dtype = y.dtype(),
          .type = weight.type,
          .has_vectors = bits % 16 == 0};
}

}  // namespace

void embedding(const ExecContext& ctx, const TensorView& y, const ConstTensorView& token_ids,
               const PackedWeight& weight) {
  HEDDLE_CHECK(y.size(0) <= kMaxTokens, "embedding: ", y.size(0), " tokens, at most ", kMaxTokens,
               " are supported on ", ctx.device);
  Params p = params_of(ctx, y, weight);
  p.ids = ConstIndexVector(token_ids);
  const dim3 grid(static_cast<unsigned>(y.size(0)),
                  static_cast<unsigned>(ceil_div(weight.in_features, kBlockWeights)));
  launch_early<embedding_kernel>(ctx, grid, kThreads, p);
}

void dequantize_rows(const ExecContext& ctx, const TensorView& y, const PackedWeight& weight,
                     int64_t first_output) {
  if (y.num_elements() == 0) return;
  Params p = params_of(ctx, y, weight);
  p.first_output = first_output;
  constexpr int64_t kGroup = PackedLayout::kGroup;
  const dim3 grid(static_cast<unsigned>(ceil_div(weight.in_features, kBlockWeights / kGroup)),
                  static_cast<unsigned>(ceil_div(y.size(0), kGroup)));
  launch_early<dequantize_kernel>(ctx, grid, kThreads, p);
  cudaLaunchConfig_t config{};
  config.gridDim = config.blockDim = dim3(1);
  config.stream = ctx.stream;
  HEDDLE_CUDA_CHECK(cudaLaunchKernelEx(&config, end_of_writes_kernel));
}

}  // namespace heddle::cuda::linear
