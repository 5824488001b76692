#pragma once

#include <cmath>

#include "cuda/convert_cuda.h"
#include "cuda/fault_cuda.h"

#include "ops/lora_device/window_plan.h"

namespace heddle::cuda::lora {

// A plan that lora_plan never wrote, or wrote for other rows, slots, ranks or arrays of a batch,
// has another tag. Kernels take it for one without rows, so nothing that it says is followed; the
// last kernel of a call then makes NaN of y and tells.

[[nodiscard]] __device__ inline bool is_foreign(uint32_t tag_of_plan, uint32_t tag) {
  return (tag_of_plan ^ tag) > kMixedBit;
}

/// What the head of a window's plan says.
struct WindowHead {
  int num_row_tiles = 0, num_tiles = 0, num_partials = 0;
  uint32_t tag = 0;
  bool is_foreign = false;

  WindowHead() = default;
  __device__ WindowHead(const WindowPlan& plan, uint32_t tag_of_call) {
    const int4 head = *reinterpret_cast<const int4*>(&plan);
    tag = static_cast<uint32_t>(head.w);
    is_foreign = lora::is_foreign(tag, tag_of_call);
    num_row_tiles = is_foreign ? 0 : head.x;
    num_tiles = is_foreign ? 0 : head.y;
    num_partials = is_foreign ? 0 : head.z;
  }
  /// Of tiles that a block found itself, each of so many rank tiles.
  [[nodiscard]] static __device__ WindowHead of_own(int num_row_tiles, int num_rank_tiles) {
    WindowHead head;
    head.num_row_tiles = num_row_tiles;
    head.num_tiles = num_row_tiles * num_rank_tiles;
    return head;
  }
  [[nodiscard]] __device__ bool is_mixed() const { return (tag & kMixedBit) != 0; }
};

/// Makes NaN of the rows [first_row, first_row + num_rows) of all slices, and tells. Threads 0 to
/// num_threads - 1 call it; no other thread writes y.
template <class Params>
__device__ __noinline__ void refuse_plan(const Params& p, const char* op, DType y_dtype,
                                         int first_row, int num_rows, uint32_t tag, int thread,
                                         int num_threads) {
  if (thread == 0) report_fault(p.faults, op, "plan", first_row, tag);
  with_type(y_dtype, [&](auto type) {
    using Y = decltype(type);
#pragma unroll 1
    for (int s = 0; s < p.num_slices; ++s) {
      const auto& slice = p.slices[s];
      const int64_t count = int64_t{num_rows} * slice.width;
#pragma unroll 1
      for (int64_t i = thread; i < count; i += num_threads) {
        const int64_t row = first_row + i / slice.width;
        static_cast<Y*>(slice.y)[row * slice.y_stride + i % slice.width] = narrow<Y>(NAN);
      }
    }
  });
}

}  // namespace heddle::cuda::lora
