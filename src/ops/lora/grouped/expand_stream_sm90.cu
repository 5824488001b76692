#include "cuda/shared_memory.h"

#include "ops/lora/grouped/expand_stream_cuda.h"
#include "ops/lora_device/grouped/launch_cuda.h"

namespace heddle::cuda::lora {
namespace grouped_stream {
namespace {

constexpr int kColumns = kGroupOutputs / kProductOutputs;

/// multiply: a warp has 32 outputs of all rows that pass through the ring.
template <class T, int kSteps>
struct Multiply {
  const GroupedParams& p;
  Shared<kSteps>& s;
  Weights<kSteps, kColumns> weights;

  __device__ static int warp() { return static_cast<int>(threadIdx.x / 32); }
  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }

  /// Takes B of this warp's outputs into registers, with zeros for ranks and outputs that do not
  /// exist.
  __device__ void take_b(const StageHead& head) {
    const int g = lane() / 4, q = lane() % 4, rank = head.rank, outputs = head.y_bytes / 2;
    const int first = warp() * kGroupOutputs + output_of(0, g);
    const std::byte* const b = head.takes_b == TakesB::kCopy ? s.b : head.b;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      const int output = first + output_of(i, 0);
      const std::byte* const from = b + int64_t{output} * head.b_stride;
      if (kSteps == 1 || rank <= kTileRanks) {
        const bool in_range = q * 4 < rank && output < outputs;
        weights.v[i][0] = in_range ? reinterpret_cast<const uint2*>(from)[q] : uint2{0, 0};
        continue;
      }
      if constexpr (kSteps > 1) {
#pragma unroll
        for (int step = 0; step < kSteps; step += 2) {
          const bool in_range = step * kTileRanks + q * 8 < rank && output < outputs;
          [[maybe_unused]] const uint4 two =
              in_range ? reinterpret_cast<const uint4*>(from)[step * 2 + q] : uint4{0, 0, 0, 0};
          weights.v[i][step] = {two.x, two.y};
          weights.v[i][step + 1] = {two.z, two.w};
        }
      }
    }
  }

  __device__ void add(Stage<kSteps>& stage) const {
    const StageHead& head = stage.head;
    Sums<kColumns> sum = {};
    const int row = lane() % kProductRows, steps = num_steps(head.rank);
    const uint32_t h =
        shared_address(&stage.h[row * (kSteps == 1 ? kHStepVectors : p.h_row_vectors)]);
    const int swap = h_swap(head.h_row + row, kSteps == 1 ? kHStepVectors : p.h_row_vectors);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (step >= steps) break;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int index = step * kHStepVectors + half * 2 + lane() / kProductRows;
        uint32_t a[4];
        load_matrices(a, h + static_cast<uint32_t>((index ^ swap) * int{sizeof(uint4)}));
#pragma unroll
        for (int i = 0; i < kColumns; ++i) {
          mma_m16n8k16<T>(sum[i], a, weights.v[i][step].x, weights.v[i][step].y);
        }
      }
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int at = lane() / 4 + 8 * j;
      uint4& y = stage.y[at][warp() * (kGroupOutputs / kLaneOutputs) + lane() % 4];
      const float factor = head.factor[at];
      uint4 before{kNothing, kNothing, kNothing, kNothing};
      if (p.site.accumulate) before = y;
      const auto two = [&](int i) {
        return add_rounded<T>(word(before, i), factor, sum[i][2 * j], sum[i][2 * j + 1]);
      };
      y = uint4{two(0), two(1), two(2), two(3)};
    }
  }

  __device__ void run() {
    RingPlace at = RingPlace::of_multiply();
    uint32_t b_parity = 0;
#pragma unroll 1
    while (true) {
      s.ring.wait_full(at);
      Stage<kSteps>& stage = s.stages[at.stage];
      const bool is_end = stage.head.num_rows == 0;
      if (!is_end) {
        if (stage.head.takes_b == TakesB::kCopy) {
          s.b_full.wait(b_parity);
          b_parity ^= 1;
          take_b(stage.head);
          show_to_copy_engine();
          __syncwarp();
          if (lane() == 0) s.b_empty.arrive();
        } else if (stage.head.takes_b == TakesB::kMemory) {
          take_b(stage.head);
        }
        add(stage);
      }
      show_to_copy_engine();
      __syncwarp();
      if (lane() == 0) s.done[at.stage].arrive();
      if (is_end) break;
      at.advance(kStages<kSteps>);
    }
  }
};

// y (+)= factor * h B^T for ranks up to 64, with h as join has written it.
//
//   block   items of a row tile x 256 outputs, 16 rows at a time through the ring of stages
//   warp    eight multiply 32 outputs each, B in registers; one loads, one stores
//   lane    of 16 rows: the rows g and g + 8, eight outputs in a row
//
// The copy engine moves up to 512 bytes of a row at a time, so no thread spends instructions on
// single vectors. Grid: blocks that run at the same time.
template <class T, int kSteps>
__global__ void __launch_bounds__(kThreads, kForm.blocks)
    grouped_stream_kernel(const __grid_constant__ GroupedParams p) {
  extern __shared__ __align__(128) uint4 memory[];
  auto& s = *reinterpret_cast<Shared<kSteps>*>(memory);
  trigger_dependents();
  const int warp = static_cast<int>(threadIdx.x / 32);
  if (threadIdx.x == 0) {
    s.ring.init(1);
    for (PhaseBarrier& done : s.done) done.init(kWarps);
    s.b_full.init(1);
    s.b_empty.init(kWarps);
    show_to_copy_engine();
  }
  __syncthreads();
  if (warp == kLoad) {
    Load<kSteps>{p, s}.run();
  } else if (warp == kFinish) {
    finish(s);
  } else {
    Multiply<T, kSteps>{p, s}.run();
  }
}

template <class T, int kSteps>
void run(const GroupedParams& p, const GroupedLaunch& launch) {
  constexpr auto kKernel = grouped_stream_kernel<T, kSteps>;
  constexpr int kBytes = sizeof(Shared<kSteps>);
  constexpr int kMax = kBytes > kPortableSharedBytes ? kBytes : kPortableSharedBytes;
  allow_shared_memory<kKernel, kPortableSharedBytes, kMax>(launch.device, kBytes);
  launch_part<kKernel>(p, launch, launch.config.expand_blocks, kThreads, kBytes, true);
}

template <class T>
void launch_instance(const GroupedParams& p, const GroupedLaunch& launch) {
  if (launch.config.ranks == GroupedRanks::kUpTo16) return run<T, 1>(p, launch);
  run<T, 4>(p, launch);
}

}  // namespace
}  // namespace grouped_stream

template <>
void launch_grouped_expand_sm90<bfloat16>(const GroupedParams& p, const GroupedLaunch& launch) {
  grouped_stream::launch_instance<__nv_bfloat16>(p, launch);
}
template <>
void launch_grouped_expand_sm90<half>(const GroupedParams& p, const GroupedLaunch& launch) {
  grouped_stream::launch_instance<__half>(p, launch);
}

}  // namespace heddle::cuda::lora
