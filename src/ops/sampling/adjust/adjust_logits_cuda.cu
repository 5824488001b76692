#include "cuda/check.h"

#include "core/math.h"
#include "ops/sampling/adjust/adjust_kernels.h"

namespace heddle::cuda::sampling {
namespace {

constexpr int kThreads = 256;

/// The row that entry i belongs to: the last that begins at it or before; -1, or num_rows and more,
/// where it belongs to none.
__device__ int64_t row_of(const AdjustParams& p, int64_t i) {
  int64_t low = 0, high = p.num_rows + 1;  // of the starts, the first that is above i
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (p.indptr[middle] > i) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low - 1;
}

/// The logit of entry i and its row; nullptr where it has none.
struct Entry {
  float* logit;
  int64_t row;
};

__device__ Entry entry_of(const AdjustParams& p, int64_t i) {
  if (i >= p.num_entries) return {nullptr, 0};
  const int64_t row = row_of(p, i), token = p.token_ids[i];
  const bool has_logit = row >= 0 && row < p.num_rows && token >= 0 && token < p.vocab_size;
  return {has_logit ? p.logits + row * p.row_stride + token : nullptr, row};
}

// One thread per entry; grid ceil(num_entries / kThreads). The products are rounded before they are
// added, as on the CPU.
__global__ void __launch_bounds__(kThreads) adjust_kernel(const __grid_constant__ AdjustParams p) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const auto [logit, row] = entry_of(p, i);
  if (logit == nullptr) return;
  const float before = *logit;
  if (p.saved != nullptr) p.saved[i] = before;
  const int32_t in_output = p.output_counts[i];
  const double repetition = p.repetition[row];
  double x = __dadd_rn(before, p.bias[i]);
  if (p.prompt_counts[i] + int64_t{in_output} > 0) {
    x = x > 0.0 ? __ddiv_rn(x, repetition) : __dmul_rn(x, repetition);
  }
  x = __dsub_rn(x, __dmul_rn(p.frequency[row], in_output));
  if (in_output > 0) x = __dsub_rn(x, p.presence[row]);
  *logit = static_cast<float>(x);
}

// The same grid.
__global__ void __launch_bounds__(kThreads) restore_kernel(const __grid_constant__ AdjustParams p) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const Entry entry = entry_of(p, i);
  if (entry.logit != nullptr) *entry.logit = p.restored[i];
}

unsigned blocks_of(const AdjustParams& p) {
  return static_cast<unsigned>(ceil_div(p.num_entries, int64_t{kThreads}));
}

}  // namespace

void adjust_logits(const AdjustParams& params, cudaStream_t stream) {
  if (params.num_entries == 0 || params.num_rows == 0) return;
  adjust_kernel<<<blocks_of(params), kThreads, 0, stream>>>(params);
  HEDDLE_CUDA_CHECK(cudaGetLastError());
}

void restore_logits(const AdjustParams& params, cudaStream_t stream) {
  if (params.num_entries == 0 || params.num_rows == 0) return;
  restore_kernel<<<blocks_of(params), kThreads, 0, stream>>>(params);
  HEDDLE_CUDA_CHECK(cudaGetLastError());
}

}  // namespace heddle::cuda::sampling
