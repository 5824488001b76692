#include "cuda/check.h"
#include "cuda/early_launch.h"
#include "cuda/shared_memory.h"

#include "ops/lora/halves/expand_cuda.h"
#include "ops/lora/halves/shrink_cuda.h"
#include "ops/lora_device/foreign_plan_cuda.h"

namespace heddle::cuda::lora {
namespace {

__device__ void refuse_plan(const HalfParams& p, const WindowHead& plan) {
  lora::refuse_plan(p, p.op(), p.y_dtype, 0, p.num_rows, plan.tag,
                    static_cast<int>(blockIdx.x * kBlockThreads + threadIdx.x),
                    static_cast<int>(gridDim.x) * kBlockThreads);
}

/// Describes the next items of this block, a thread each. Returns their number.
template <class T, bool kShrinks>
__device__ int describe(const HalfParams& p, HalfShared& s, const BlockRange& items,
                        bool double_width) {
  const int num = min(kBatch, items.end - items.begin), i = static_cast<int>(threadIdx.x);
  if (i < num) {
    if constexpr (kShrinks) {
      describe_shrink<T>(p, s.own_plan, items.begin + i, s.items[i]);
    } else {
      describe_expand<T>(p, s.own_plan, items.begin + i, double_width, s.items[i]);
    }
  }
  __syncthreads();
  return num;
}

// Half of a LoRA product in a launch of its own: partial sums of h = A x, or y (+)= factor * B h.
//
//   block   consecutive work items: [16 ranks] x [512 features], or [256 or 512 outputs] x
//           [all ranks], for up to 16 rows of one adapter
//   warp    64 of the features, or 32 of the outputs of either half; copies run two items ahead
//   lane    shrink: the ranks g and g + 8 and row g (lora_device/shrink_tile_cuda.h)
//           expand: the outputs 4 g + [0, 4) of the rows 2 q and 2 q + 1 of each 8
//
// kAligned: everything is loaded in vectors of 16 bytes. Grid: blocks that run at the same time.
template <class T, bool kShrinks, bool kAligned>
__global__ void __launch_bounds__(kBlockThreads, 2)
    half_kernel(const __grid_constant__ HalfParams p) {
  extern __shared__ uint4 memory[];
  HalfShared& s = *reinterpret_cast<HalfShared*>(memory);
  if constexpr (kShrinks) trigger_dependents();
  // Items of 512 outputs cost less where every block has several. The sums are the same.
  const WindowHead plan = head_of_plan(p, s.own_plan, s.slots);
  const int num_items = kShrinks ? plan.num_tiles * p.num_slices * p.num_chunks
                                 : plan.num_row_tiles * p.items_per_row_tile[0];
  const bool double_width = !kShrinks && num_items >= 2 * static_cast<int>(gridDim.x);
  BlockRange items(double_width ? plan.num_row_tiles * p.items_per_row_tile[1] : num_items,
                   p.block_reciprocal);
  const int warp = threadIdx.x / 32;
  bool waits = !kShrinks && p.partials != nullptr;
  CachedH cached;
  ExpandSums sum = {};
  do {
    const int num = describe<T, kShrinks>(p, s, items, double_width);
    Cursor fetched, at;
#pragma unroll 1
    for (int turn = 1 - kSlots, ahead = 0, slot = 0;; ++turn) {
      __syncwarp();  // all lanes have read the slot that is overwritten now
      if (fetched.item < num) {
        const WorkItem& item = s.items[fetched.item];
        if constexpr (kShrinks) {
          fetch_shrink<T, kAligned>(p, item, s.slots[ahead][warp]);
          ++fetched.item;
        } else {
          if (item.rank > 0) fetch_expand<T, kAligned>(p, item, fetched, s.slots[ahead][warp]);
          fetched.advance(item);
        }
      }
      commit_copies();
      ahead = ahead == kSlots - 1 ? 0 : ahead + 1;
      if (turn < 0) continue;
      if (waits) wait_for_predecessor();
      waits = false;
      wait_for_copies<kSlots - 1>();
      __syncwarp();
      if (at.item >= num) break;
      const WorkItem& item = s.items[at.item];
      if constexpr (kShrinks) {
        run_shrink<T, kAligned>(p, s, item, s.slots[slot][warp]);
        ++at.item;
      } else {
        if (item.rank > 0)
          run_expand<T, kAligned>(p, s, item, at, s.slots[slot][warp], cached, sum);
        at.advance(item);
      }
      slot = slot == kSlots - 1 ? 0 : slot + 1;
    }
    items.begin += num;
    __syncthreads();
  } while (items.begin < items.end);
  if (!kShrinks && plan.is_foreign) refuse_plan(p, plan);
}

// The second half of lora_shrink: y (+)= factor * h, where h is the sum of the partial sums. A
// block takes items of 128 ranks for up to 16 rows. Grid: blocks that run at the same time.
__global__ void __launch_bounds__(kBlockThreads) sum_kernel(const __grid_constant__ HalfParams p) {
  __shared__ WorkItem item;
  __shared__ OwnPlan own_plan;
  __shared__ OwnPlanScratch scratch;
  const WindowHead plan = head_of_plan(p, own_plan, &scratch);
  BlockRange items(plan.num_row_tiles * p.items_per_row_tile[0], p.block_reciprocal);
  wait_for_predecessor();
  if (plan.is_foreign) return refuse_plan(p, plan);
#pragma unroll 1
  for (; items.begin < items.end; ++items.begin) {
    if (threadIdx.x == 0) describe_sum(p, own_plan, items.begin, item);
    __syncthreads();
    if (item.rank > 0) run_sum(p, item);
    __syncthreads();
  }
}

template <auto kKernel>
void run(int bytes, const HalfParams& p, const HalfLaunch& launch, cudaStream_t stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(launch.num_blocks));
  config.blockDim = dim3(kBlockThreads);
  config.dynamicSmemBytes = static_cast<size_t>(bytes);
  config.stream = stream;
  const bool waits = launch.step != HalfStep::kShrink && p.partials != nullptr;
  if (waits) return launch_early<kKernel>(launch.device, config, p);
  HEDDLE_CUDA_CHECK(cudaLaunchKernelEx(&config, kKernel, p));
}

template <class T, bool kShrinks, bool kAligned>
void run_half(const HalfParams& p, const HalfLaunch& launch, cudaStream_t stream) {
  constexpr auto kKernel = half_kernel<T, kShrinks, kAligned>;
  constexpr int kBytes = sizeof(HalfShared);
  allow_shared_memory<kKernel, kBytes>(launch.device);
  run<kKernel>(kBytes, p, launch, stream);
}

template <class T, bool kAligned>
void launch_instance(const HalfParams& p, const HalfLaunch& launch, cudaStream_t stream) {
  switch (launch.step) {
    case HalfStep::kShrink: return run_half<T, true, kAligned>(p, launch, stream);
    case HalfStep::kExpand: return run_half<T, false, kAligned>(p, launch, stream);
    case HalfStep::kSum: return run<sum_kernel>(0, p, launch, stream);
  }
}

template <class T>
void run_typed(const HalfParams& p, const HalfLaunch& launch, cudaStream_t stream) {
  launch.is_aligned ? launch_instance<T, true>(p, launch, stream)
                    : launch_instance<T, false>(p, launch, stream);
}

}  // namespace

template <>
void launch_half<bfloat16>(const HalfParams& p, const HalfLaunch& launch, cudaStream_t stream) {
  run_typed<__nv_bfloat16>(p, launch, stream);
}
template <>
void launch_half<half>(const HalfParams& p, const HalfLaunch& launch, cudaStream_t stream) {
  run_typed<__half>(p, launch, stream);
}

}  // namespace heddle::cuda::lora
