#include "cuda/check.h"
#include "cuda/shared_memory.h"

#include "ops/lora/lora_cuda_params.h"
#include "ops/lora/lora_expand_cuda.h"

namespace heddle::cuda {
namespace {

/// Describes the next items of this block; gives their numbers.
template <class T, LoraOp kOp, bool kShrinks, bool kExpands>
__device__ int2 describe(const LoraParams& p, LoraShared& s, const Share& shrinks,
                         const Share& expands, bool twice) {
  const int num_shrinks = min(kBatch, shrinks.end - shrinks.begin);
  const bool is_last = shrinks.begin + num_shrinks == shrinks.end;
  const int num_expands = is_last ? min(kBatch, expands.end - expands.begin) : 0;
  const int t = static_cast<int>(threadIdx.x), i = t % kBatch;
  if constexpr (kShrinks) {
    if (t / kBatch == 0 && i < num_shrinks) describe_shrink<T>(p, shrinks.begin + i, s.shrinks[i]);
  }
  if constexpr (kExpands) {
    if (t / kBatch == 1 && i < num_expands) {
      describe_expand<T, kOp>(p, expands.begin + i, twice, s.expands[i]);
    }
  }
  __syncthreads();
  return {num_shrinks, num_expands};
}

/// Shrink items write partial sums, expand items read them. Copies from memory run kSlots - 1 items ahead.
template <class T, LoraOp kOp, LoraForm kForm, bool kPlain>
__global__ void __launch_bounds__(kLoraThreads, 2)
    lora_kernel(const __grid_constant__ LoraParams p) {
  extern __shared__ uint4 memory[];
  LoraShared& s = *reinterpret_cast<LoraShared*>(memory);
  constexpr bool kIsFused = kForm == LoraForm::kFused;
  constexpr bool kShrinks = kForm != LoraForm::kSecond, kExpands = kForm != LoraForm::kFirst;
  const bool is_counter = kIsFused && threadIdx.x == kLoraThreads - 1;
  uint64_t before = 0;
  if (is_counter) before = arrive(p.arrivals);  // asked for long before it is needed
  if constexpr (kForm == LoraForm::kFirst) trigger_dependents();

  Share shrinks(kShrinks ? p.plan->num_tiles * p.num_slices * p.num_chunks : 0, p.block_reciprocal);
  // Where every block has several items of expand, larger ones cost less; the sums are the same.
  const int num_expands = kExpands ? p.plan->num_parts * p.items_per_part[0] : 0;
  const bool twice = kOp != LoraOp::kShrink && num_expands >= 2 * static_cast<int>(gridDim.x);
  Share expands(twice ? p.plan->num_parts * p.items_per_part[1] : num_expands, p.block_reciprocal);
  const int warp = threadIdx.x / 32;
  bool is_start = true;
  HeldH held;
  ExpandSums sum = {};
  do {
    const int2 num = describe<T, kOp, kShrinks, kExpands>(p, s, shrinks, expands, twice);
    LoraCursor fetched, at;
#pragma unroll 1
    for (int turn = 1 - kSlots, ahead = 0, slot = 0;; ++turn) {
      __syncwarp();  // all lanes have read what is overwritten now
      if (fetched.shrink < num.x) {
        fetch_shrink<T, kPlain>(p, s.shrinks[fetched.shrink++], s.slots[ahead][warp]);
      } else if (fetched.expand < num.y) {
        const LoraItem& item = s.expands[fetched.expand];
        if constexpr (kOp == LoraOp::kShrink) {
          ++fetched.expand;
        } else {
          if (item.rank > 0) fetch_expand<T, kPlain>(p, item, fetched, s.slots[ahead][warp]);
          fetched.next_piece(item);
        }
      }
      commit_copies();
      ahead = ahead == kSlots - 1 ? 0 : ahead + 1;
      if (turn < 0) continue;
      if (is_start) {
        is_start = false;
        if constexpr (kForm == LoraForm::kSecond) wait_for_predecessor();
        if (is_counter) s.flag = flag_of(before, p.arrivals);
        if constexpr (kIsFused) __syncthreads();
      }
      wait_for_copies<kSlots - 1>();
      __syncwarp();
      if (at.shrink < num.x) {
        run_shrink<T, kIsFused, kPlain>(p, s, s.shrinks[at.shrink++], s.slots[slot][warp]);
      } else if (at.expand < num.y) {
        const LoraItem& item = s.expands[at.expand];
        if constexpr (kOp == LoraOp::kShrink) {
          if (item.rank > 0) run_sum<T, kForm, kPlain>(p, s, item, s.slots[slot][warp]);
          ++at.expand;
        } else {
          if (item.rank > 0) {
            run_expand<T, kOp, kForm, kPlain>(p, s, item, at, s.slots[slot][warp], held, sum);
          }
          at.next_piece(item);
        }
      } else {
        break;
      }
      slot = slot == kSlots - 1 ? 0 : slot + 1;
    }
    shrinks.begin += num.x;
    expands.begin += num.y;
    __syncthreads();
  } while (shrinks.begin < shrinks.end || expands.begin < expands.end);
}

template <class T, LoraOp kOp, LoraForm kForm, bool kPlain>
void run(const LoraParams& p, const LoraLaunch& launch, cudaStream_t stream) {
  constexpr auto kKernel = lora_kernel<T, kOp, kForm, kPlain>;
  constexpr int kBytes = sizeof(LoraShared);
  allow_shared_memory<kKernel, kBytes>(launch.device);
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  const bool waits = kForm == LoraForm::kSecond && kOp != LoraOp::kExpand;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(launch.num_blocks));
  config.blockDim = dim3(kLoraThreads);
  config.dynamicSmemBytes = kBytes;
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = waits && launch.starts_early ? 1 : 0;
  HEDDLE_CUDA_CHECK(cudaLaunchKernelEx(&config, kKernel, p));
}

template <class T, bool kPlain>
void run_any(const LoraParams& p, const LoraLaunch& launch, cudaStream_t stream) {
  using enum LoraOp;
  using enum LoraForm;
  const LoraOp op = launch.op;
  const LoraForm form = launch.form;
  if (op == kExpand) return run<T, kExpand, kSecond, kPlain>(p, launch, stream);
  if (form == kFirst) return run<T, kApply, kFirst, kPlain>(p, launch, stream);  // of both
  if (op == kApply && form == kFused) return run<T, kApply, kFused, kPlain>(p, launch, stream);
  if (op == kApply) return run<T, kApply, kSecond, kPlain>(p, launch, stream);
  if (form == kFused) return run<T, kShrink, kFused, kPlain>(p, launch, stream);
  // Reads no weights, so one kernel serves both.
  return run<T, kShrink, kSecond, false>(p, launch, stream);
}

template <class T>
void run_typed(const LoraParams& p, const LoraLaunch& launch, cudaStream_t stream) {
  launch.is_plain ? run_any<T, true>(p, launch, stream) : run_any<T, false>(p, launch, stream);
}

}  // namespace

template <>
void launch_lora<bfloat16>(const LoraParams& p, const LoraLaunch& launch, cudaStream_t stream) {
  run_typed<__nv_bfloat16>(p, launch, stream);
}
template <>
void launch_lora<half>(const LoraParams& p, const LoraLaunch& launch, cudaStream_t stream) {
  run_typed<__half>(p, launch, stream);
}

}  // namespace heddle::cuda
