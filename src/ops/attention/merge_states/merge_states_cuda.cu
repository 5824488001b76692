#include <cmath>

#include "cuda/check.h"
#include "cuda/rotate_vectors_cuda.h"

#include "core/math.h"
#include "ops/attention/merge_states/merge_states_cuda_params.h"

namespace heddle::cuda::attention {
namespace {

constexpr int kThreads = 256;

struct Weights {
  float a, b, lse;
};

/// exp(lse_a - lse), exp(lse_b - lse) and lse; zeros and -inf of two states that are -inf.
__device__ Weights weigh(float lse_a, float lse_b) {
  const float max = fmaxf(lse_a, lse_b);
  if (max == -INFINITY) return {0.0f, 0.0f, max};
  const float a = expf(lse_a - max), b = expf(lse_b - max);
  return {a / (a + b), b / (a + b), max + log1pf(fminf(a, b))};  // the larger of a and b is 1
}

// o = a o_a + b o_b with the weights of the rows' states. Rows in grid.x; row_lanes lanes of a warp
// form a group that shares a row, kVec elements at a time. o may be o_a or o_b, and lse may be
// lse_a or lse_b: all lanes read a row's lse, and each its elements, before they write.
template <class T, int kVec>
__global__ void __launch_bounds__(kThreads)
    merge_states_kernel(const __grid_constant__ MergeParams p) {
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t row = index / p.row_lanes;
  const bool in_range = row < p.num_rows;
  const int lane = static_cast<int>(index % p.row_lanes);
  const int64_t t = in_range ? row / p.num_heads : 0, h = in_range ? row % p.num_heads : 0;
  const Weights w = weigh(p.lse_a.data[t * p.lse_a.token + h * p.lse_a.head],
                          p.lse_b.data[t * p.lse_b.token + h * p.lse_b.head]);
  __syncwarp();
  if (!in_range) return;
  if (lane == 0 && p.lse.data != nullptr) p.lse.data[t * p.lse.token + h * p.lse.head] = w.lse;
  const std::byte* a = p.o_a.data + t * p.o_a.token + h * p.o_a.head;
  const std::byte* b = p.o_b.data + t * p.o_b.token + h * p.o_b.head;
  std::byte* o = p.o.data + t * p.o.token + h * p.o.head;
  for (int i = lane; i < p.row_units; i += p.row_lanes) {
    Elements<T, kVec> from_a{}, from_b{}, sum;  // a state of weight 0 is not read
    if (w.a != 0.0f) from_a = load_elements<T, kVec>(a, i * kVec);
    if (w.b != 0.0f) from_b = load_elements<T, kVec>(b, i * kVec);
#pragma unroll
    for (int j = 0; j < kVec; ++j) {
      sum.at[j] = narrow<T>(fmaf(w.b, widen(from_b.at[j]), w.a * widen(from_a.at[j])));
    }
    store_elements(o, i * kVec, sum);
  }
}

template <class T>
void launch(const MergeParams& p, bool is_vector, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(ceil_div(p.num_rows * p.row_lanes, kThreads));
  if (is_vector) {
    merge_states_kernel<T, 16 / sizeof(T)><<<blocks, kThreads, 0, stream>>>(p);
  } else {
    merge_states_kernel<T, 1><<<blocks, kThreads, 0, stream>>>(p);
  }
  HEDDLE_CUDA_CHECK(cudaGetLastError());
}

}  // namespace

void launch_merge_states(const MergeParams& p, bool is_vector, cudaStream_t stream) {
  switch (p.dtype) {
    case DType::kFloat16: return launch<__half>(p, is_vector, stream);
    case DType::kBFloat16: return launch<__nv_bfloat16>(p, is_vector, stream);
    default: return launch<float>(p, is_vector, stream);
  }
}

}  // namespace heddle::cuda::attention
