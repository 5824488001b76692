#include "cuda/begin_early_cuda.h"
#include "cuda/early_launch.h"
#include "cuda/memory_cuda.h"
#include "cuda/warp.h"

#include "core/math.h"
#include "ops/sampling/adjust/adjust_kernels.h"

namespace heddle::cuda::sampling {
namespace {

constexpr int kThreads = 256;

/// How many rows begin at entry i or before, the end of the last one among them; the same i in all
/// lanes, each of which looks at one start of a round.
__device__ int64_t starts_up_to(const AdjustParams& p, int64_t i) {
  int64_t low = 0, high = p.num_rows + 1;
  while (low < high) {
    const int64_t step = (high - low + kWarpSize - 1) / kWarpSize;
    const int64_t at = low + (threadIdx.x % kWarpSize + 1) * step - 1;
    const bool is_up_to = at < high && p.indptr[at] <= i;
    const int64_t num = __popc(__ballot_sync(kAllLanes, is_up_to));
    const int64_t above = low + (num + 1) * step - 1;
    high = above < high ? above : high;
    low += num * step;
  }
  return low;
}

/// The row that entry i belongs to: the last that begins at it or before; -1, or num_rows and more,
/// where it belongs to none. By whole warps; entries of most of them belong to one row.
__device__ int64_t row_of(const AdjustParams& p, int64_t i) {
  const int64_t first = i - threadIdx.x % kWarpSize, last = first + kWarpSize - 1;
  int64_t low = starts_up_to(p, first), high = p.num_rows + 1;  // the first start that is above i
  if (low == high || p.indptr[low] > last) high = low;
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
  const int64_t token = i < p.num_entries ? p.token_ids[i] : -1;
  const int64_t row = row_of(p, i);
  const bool has_logit = row >= 0 && row < p.num_rows && token >= 0 && token < p.vocab_size;
  return {has_logit ? p.logits + row * p.row_stride + token : nullptr, row};
}

// One thread per entry; grid ceil(num_entries / kThreads). The products are rounded before they are
// added, as on the CPU.
__global__ void __launch_bounds__(kThreads) adjust_kernel(const __grid_constant__ AdjustParams p) {
  begin_early(p);
  trigger_dependents();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t at = i < p.num_entries ? i : p.num_entries - 1;
  const int32_t in_prompt = p.prompt_counts[at], in_output = p.output_counts[at];
  const float bias = p.bias[at];
  const auto [logit, row] = entry_of(p, i);
  if (logit == nullptr) return;
  const float before = *logit;
  if (p.saved != nullptr) p.saved[i] = before;
  const double repetition = p.repetition[row];
  double x = __dadd_rn(before, bias);
  if (in_prompt + int64_t{in_output} > 0) {
    x = x > 0.0 ? __ddiv_rn(x, repetition) : __dmul_rn(x, repetition);
  }
  x = __dsub_rn(x, __dmul_rn(p.frequency[row], in_output));
  if (in_output > 0) x = __dsub_rn(x, p.presence[row]);
  *logit = static_cast<float>(x);
}

// The same grid.
__global__ void __launch_bounds__(kThreads) restore_kernel(const __grid_constant__ AdjustParams p) {
  begin_early(p);
  trigger_dependents();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const float restored = i < p.num_entries ? p.restored[i] : 0.0f;
  const Entry entry = entry_of(p, i);
  if (entry.logit != nullptr) *entry.logit = restored;
}

unsigned blocks_of(const AdjustParams& p) {
  return static_cast<unsigned>(ceil_div(p.num_entries, int64_t{kThreads}));
}

}  // namespace

void adjust_logits(const ExecContext& ctx, const AdjustParams& params) {
  if (params.num_entries == 0 || params.num_rows == 0) return;
  launch_early<adjust_kernel>(ctx, dim3(blocks_of(params)), kThreads, params);
}

void restore_logits(const ExecContext& ctx, const AdjustParams& params) {
  if (params.num_entries == 0 || params.num_rows == 0) return;
  launch_early<restore_kernel>(ctx, dim3(blocks_of(params)), kThreads, params);
}

}  // namespace heddle::cuda::sampling
