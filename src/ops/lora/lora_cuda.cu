#include "ops/lora/lora_cuda_params.h"

#include "cuda/check.h"
#include "ops/lora/lora_expand_cuda.h"

namespace heddle::cuda {
namespace {

constexpr uint64_t kArrivalBlocks = 1u << 16;

/// Counts a block that begins. What the counter held says which launch this is.
__device__ uint64_t arrive(uint64_t* arrivals) {
  return atomicAdd(reinterpret_cast<unsigned long long*>(arrivals), 1ull);
}

/// The flag of the launch whose arrivals were `before`; the last of its blocks counts the launch. Never 0, with which
/// memory begins; 2^32 launches later it comes again (flag 0 is left out, so one launch in 2^32 has its neighbour's).
__device__ uint32_t flag_of(uint64_t before, uint64_t* arrivals) {
  if (before % kArrivalBlocks == gridDim.x - 1) {
    atomicAdd(reinterpret_cast<unsigned long long*>(arrivals), kArrivalBlocks - gridDim.x);
  }
  return static_cast<uint32_t>(before / kArrivalBlocks) + 1;
}

/// A block's items: its units of shrink, then the pieces of its units of expand. Copies run kSlots - 1 items ahead.
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

  const int first = static_cast<int>(blockIdx.x), step = static_cast<int>(gridDim.x);
  const int num_shrinks = kShrinks ? p.plan->num_tiles * p.num_slices * p.num_chunks : 0;
  const int num_expands = kExpands ? p.plan->num_parts * p.items_per_part : 0;
  int fetched_shrink = first, shrink = first;
  ExpandCursor fetched{first, 0}, at{first, 0};
  ExpandSums sum = {};
  for (int turn = 1 - kSlots;; ++turn) {
    LoraSlot& ahead = s.slots[(turn + kSlots - 1) % kSlots];
    if (fetched_shrink < num_shrinks) {
      fetch_shrink<T, kPlain>(p, shrink_unit(p, fetched_shrink), ahead);
      fetched_shrink += step;
    } else if (fetched.item < num_expands) {
      const ExpandUnit unit = expand_unit<kOp>(p, fetched.item);
      const LoraWeight weight = weight_of<kOp>(p, unit);
      if constexpr (kOp != LoraOp::kShrink) {
        if (weight.rank > 0) {
          fetch_expand<T, kPlain>(p, unit, weight, fetched.piece * kRankPiece, ahead);
        }
      }
      fetched.advance(kOp == LoraOp::kShrink ? 0 : weight.rank);
    }
    commit_copies();
    if (turn < 0) continue;
    if (turn == 0) {
      if constexpr (kForm == LoraForm::kFirst) trigger_dependents();
      if constexpr (kForm == LoraForm::kSecond) wait_for_predecessor();
      if (is_counter) s.flag = flag_of(before, p.arrivals);
      if constexpr (kIsFused) __syncthreads();
    }
    wait_for_copies<kSlots - 1>();
    LoraSlot& slot = s.slots[turn % kSlots];
    if (shrink < num_shrinks) {
      run_shrink<T, kIsFused, kPlain>(p, s, shrink_unit(p, shrink), slot, turn % 2);
      shrink += step;
    } else if (at.item < num_expands) {
      const ExpandUnit unit = expand_unit<kOp>(p, at.item);
      const LoraWeight weight = weight_of<kOp>(p, unit);
      if constexpr (kOp == LoraOp::kShrink) {
        if (unit.first < weight.rank) run_sum<T, kForm, kPlain>(p, s, unit, weight.rank, slot);
        at.advance(0);
      } else if constexpr (kExpands) {
        if (weight.rank > 0) {
          run_expand<T, kOp, kForm, kPlain>(p, s, unit, weight, at.piece * kRankPiece, slot,
                                            turn % 2, sum);
        }
        at.advance(weight.rank);
      }
    } else {
      break;
    }
  }
}

template <class T, LoraOp kOp, LoraForm kForm, bool kPlain>
void launch(const LoraParams& p, int num_blocks, cudaStream_t stream) {
  const auto kernel = lora_kernel<T, kOp, kForm, kPlain>;
  constexpr int kBytes = sizeof(LoraShared);
  HEDDLE_CUDA_CHECK(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(num_blocks));
  config.blockDim = dim3(kLoraThreads);
  config.dynamicSmemBytes = kBytes;
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = kForm == LoraForm::kSecond && kOp != LoraOp::kExpand ? 1 : 0;
  HEDDLE_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, p));
}

template <class T, bool kPlain>
void launch_any(const LoraParams& p, LoraOp op, LoraForm form, int num_blocks,
                cudaStream_t stream) {
  using enum LoraOp;
  using enum LoraForm;
  if (op == kExpand) return launch<T, kExpand, kSecond, kPlain>(p, num_blocks, stream);
  if (form == kFirst) return launch<T, kApply, kFirst, kPlain>(p, num_blocks, stream);  // of both
  if (op == kApply) {
    return form == kFused ? launch<T, kApply, kFused, kPlain>(p, num_blocks, stream)
                          : launch<T, kApply, kSecond, kPlain>(p, num_blocks, stream);
  }
  return form == kFused ? launch<T, kShrink, kFused, kPlain>(p, num_blocks, stream)
                        : launch<T, kShrink, kSecond, kPlain>(p, num_blocks, stream);
}

}  // namespace

template <>
void launch_lora<bfloat16>(const LoraParams& p, LoraOp op, LoraForm form, bool is_plain,
                           int num_blocks, cudaStream_t stream) {
  (is_plain ? launch_any<__nv_bfloat16, true>
            : launch_any<__nv_bfloat16, false>)(p, op, form, num_blocks, stream);
}
template <>
void launch_lora<half>(const LoraParams& p, LoraOp op, LoraForm form, bool is_plain, int num_blocks,
                       cudaStream_t stream) {
  (is_plain ? launch_any<__half, true> : launch_any<__half, false>)(p, op, form, num_blocks, stream);
}

}  // namespace heddle::cuda
