#include <algorithm>

#include "cuda/check.h"
#include "cuda/convert_cuda.h"

#include "core/math.h"
#include "ops/lora/pairs/pairs_kernels.h"
#include "ops/lora_device/operands_cuda.h"
#include "ops/lora_device/valid_slot_cuda.h"

namespace heddle::cuda::lora {
namespace {

constexpr int kCopyColumns = 2048;  // that a block copies of a row

struct PairRange {
  int64_t begin, end;
};

/// The pairs of token t that count: at most max_pairs, and none outside the arrays, whatever the
/// starts are.
__device__ PairRange pairs_of(const Pairs& p, int t) {
  const auto start = [&](int i) { return min(max(p.starts.at(i), int64_t{0}), p.num_pairs); };
  const int64_t begin = start(t), end = start(t + 1);
  return {begin, min(end, begin + p.max_pairs)};
}

// slot_ids[t] and factors[t] become the slot and scale * row_scale of pair `index` of token t. One
// thread a token, grid ceil(num_tokens / 256).
__global__ void __launch_bounds__(kBlockThreads)
    pick_kernel(const __grid_constant__ Pairs p, int64_t index, int32_t* slot_ids, float* factors) {
  const int t = static_cast<int>(blockIdx.x * kBlockThreads + threadIdx.x);
  if (t >= p.num_tokens) return;
  const PairRange pairs = pairs_of(p, t);
  const int64_t pair = pairs.begin + index;
  int32_t slot = kNoAdapter;
  float factor = 0.0f;
  if (pair < pairs.end) {
    slot = valid_slot(p.slots.at(pair), p.num_slots);
    factor = (p.scales != nullptr ? p.scales[pair] : 1.0f) *
             (p.row_scale != nullptr ? p.row_scale[t] : 1.0f);
  }
  slot_ids[t] = slot;
  factors[t] = factor;
}

/// Whether a pair adds to a slice: its adapter has both weights, of a rank above 0.
__device__ bool touches(const Pairs& p, const PairSite& site, int64_t pair, int slice) {
  const int32_t slot = valid_slot(p.slots.at(pair), p.num_slots);
  if (slot == kNoAdapter) return false;
  const LoraWeight a = read_weight(site.a, slot, slice), b = read_weight(site.b, slot, slice);
  return a.data != nullptr && b.data != nullptr && min(a.rank, b.rank) > 0;
}

// sums = y or y = sums for the rows that a pair touches. Grid (num_tokens, num_slices, ceil(widest
// / 2048)): a block has 2048 columns of a row, a thread every 256th of them.
__global__ void __launch_bounds__(kBlockThreads)
    copy_kernel(const __grid_constant__ Pairs p, const __grid_constant__ PairSite site,
                LoraPairCopy copy) {
  const int t = static_cast<int>(blockIdx.x), s = static_cast<int>(blockIdx.y);
  const PairSlice& slice = site.slices[s];
  const int64_t first = int64_t{blockIdx.z} * kCopyColumns;
  if (slice.sums == nullptr || first >= slice.width) return;
  const PairRange pairs = pairs_of(p, t);
  bool is_touched = false;
  for (int64_t pair = pairs.begin + threadIdx.x; pair < pairs.end; pair += kBlockThreads) {
    is_touched = is_touched || touches(p, site, pair, s);
  }
  if (!__syncthreads_or(is_touched)) return;
  float* sums = slice.sums + t * site.sums_stride;
  const int64_t end = min(first + kCopyColumns, slice.width);
  with_type(slice.dtype, [&](auto type) {
    using Y = decltype(type);
    Y* y = static_cast<Y*>(slice.y) + t * slice.y_stride;
    for (int64_t n = first + threadIdx.x; n < end; n += kBlockThreads) {
      if (copy == LoraPairCopy::kWiden) {
        sums[n] = widen(y[n]);
      } else {
        y[n] = narrow<Y>(sums[n]);
      }
    }
  });
}

constexpr unsigned num_blocks(int64_t work, int each) {
  return static_cast<unsigned>(ceil_div(work, each));
}

}  // namespace

void pick_pairs(const Pairs& p, int64_t index, int32_t* slot_ids, float* factors,
                cudaStream_t stream) {
  pick_kernel<<<num_blocks(p.num_tokens, kBlockThreads), kBlockThreads, 0, stream>>>(
      p, index, slot_ids, factors);
  HEDDLE_CUDA_CHECK(cudaGetLastError());
}

void copy_touched_rows(const Pairs& p, const PairSite& site, LoraPairCopy copy,
                       cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(p.num_tokens), static_cast<unsigned>(site.num_slices),
                  num_blocks(site.widest, kCopyColumns));
  copy_kernel<<<grid, kBlockThreads, 0, stream>>>(p, site, copy);
  HEDDLE_CUDA_CHECK(cudaGetLastError());
}

}  // namespace heddle::cuda::lora
