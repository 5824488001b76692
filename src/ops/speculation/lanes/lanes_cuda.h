#pragma once

#include <cstdint>

#include "cuda/index_cuda.h"
#include "cuda/warp.h"

#include "heddle/core/context.h"

#include "cpu/count_reader.h"
#include "ops/speculation/call/prepare_next_forward_pass_kernels.h"
#include "ops/speculation/call/rewind_kv_cache_kernels.h"
#include "ops/speculation/call/speculative_step_kernels.h"
#include "ops/speculation/shared/select_kernel.h"

namespace heddle::cuda::speculation {

//   block              64 to 512 threads
//     warp             32 >> group_shift requests
//       lane group     one request: 1 << group_shift neighbouring lanes
//         lane         one token of the request; lane 0 stores what there is once
//
// The kernels for tensors without gaps and few drafts, in which a group of neighbouring lanes has a
// request. Each packs a call, selects its kernel and launches it where that is kLaneGroups; else
// nothing is done.

[[nodiscard]] SpeculationChoice speculative_step_by_lane_groups(
    const ExecContext& ctx, const SpeculativeStepParams& params);
[[nodiscard]] SpeculationChoice prepare_next_forward_pass_by_lane_groups(
    const ExecContext& ctx, const PrepareParams& params);
[[nodiscard]] SpeculationChoice rewind_kv_cache_by_lane_groups(const ExecContext& ctx,
                                                               const RewindParams& params);

/// These kernels count in 32 bits.
inline constexpr int64_t kMaxOfLaneGroups = 0x7fffffff;

#ifdef __CUDACC__

/// A thread's place: lane `lane` of the group of request `row`.
struct LaneGroup {
  uint32_t row, lane, size;

  /// lanes: of a block, a power of two; more threads than that have the places of its first ones.
  /// block: its number.
  __device__ LaneGroup(uint32_t group_shift, uint32_t lanes, uint32_t block) {
    const uint32_t thread = block * lanes + (threadIdx.x & (lanes - 1));
    size = 1u << group_shift;
    row = thread >> group_shift;
    lane = thread & (size - 1);
  }
  /// Of a ballot of the warp, the bits of this group.
  [[nodiscard]] __device__ uint32_t bits(uint32_t ballot) const {
    const uint32_t first = threadIdx.x % 32 & ~(size - 1);
    return ballot >> first & (kAllLanes >> (32 - size));
  }
  [[nodiscard]] __device__ uint32_t mask() const {
    return (kAllLanes >> (32 - size)) << (threadIdx.x % 32 & ~(size - 1));
  }
};

#endif

/// A Count: clamped by the host, or read on the device where `at` is given.
struct GroupCount {
  ConstContiguousIndices at;
  uint32_t value = 0, limit = 0;

#ifdef __CUDACC__
  template <IndexLayout kLayout>
  [[nodiscard]] __device__ uint32_t read() const {
    if (!at.is_given()) return value;
    const int64_t n = load_if<kLayout>(true, at, 0).value();
    return n < 0 ? 0 : n < limit ? static_cast<uint32_t>(n) : limit;
  }
#endif
};
[[nodiscard]] inline GroupCount group_count(const cpu::CountReader& count, IndexPacker& pack) {
  const auto limit = static_cast<uint32_t>(count.limit());
  if (count.on_device()) return {pack.element(count.element()), 0, limit};
  return {{}, static_cast<uint32_t>(count.read()), limit};
}

}  // namespace heddle::cuda::speculation
