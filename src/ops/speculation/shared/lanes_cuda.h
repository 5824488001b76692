#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <ostream>

#include "cuda/index_cuda.h"
#include "cuda/list_sums_cuda.h"
#include "cuda/warp.h"

#include "heddle/core/context.h"

#include "core/math.h"
#include "cpu/count_reader.h"
#include "ops/speculation/prepare_next_forward_pass/prepare_next_forward_pass_kernels.h"
#include "ops/speculation/rewind_kv_cache/rewind_kv_cache_kernels.h"
#include "ops/speculation/speculative_step/speculative_step_kernels.h"

namespace heddle::cuda::speculation {

//   block              64 to 512 threads
//     warp             32 >> group_shift requests
//       lane group     one request: 1 << group_shift neighbouring lanes
//         lane         one token of the request; lane 0 stores what there is once
//
// The kernels for tensors without gaps and few drafts, in which a group of neighbouring lanes has a
// request. Each returns false, with nothing done, where it does not serve a call. list_sums: see
// list_sums_of().

[[nodiscard]] bool speculative_step_by_lane_groups(const SpeculativeStepParams& params,
                                                   uint64_t* list_sums, cudaStream_t stream);
[[nodiscard]] bool prepare_next_forward_pass_by_lane_groups(const ExecContext& ctx,
                                                            const PrepareParams& params);
[[nodiscard]] bool rewind_kv_cache_by_lane_groups(const RewindParams& params, uint64_t* list_sums,
                                                  cudaStream_t stream);

/// How a call runs, for log_choice.
enum class SpeculationKernel { kLaneGroups, kGeneral };
inline std::ostream& operator<<(std::ostream& out, SpeculationKernel kernel) {
  return out << (kernel == SpeculationKernel::kLaneGroups ? "lane_groups" : "general");
}

/// These kernels count in 32 bits.
inline constexpr int64_t kMaxOfLaneGroups = 0x7fffffff;

/// Threads of a block where there are few requests: then they spread over many multiprocessors.
inline constexpr int kGroupThreads = 64;
/// More of them where that makes more blocks than this, which would wait for one another, up to so
/// many threads.
inline constexpr int kManyGroupBlocks = 32, kFewGroupThreads = 256;
/// More still where there are not words for so many blocks.
inline constexpr int kMaxGroupThreads = 512;

#ifdef __CUDACC__

/// A thread's place: lane `lane` of the group of request `row`.
struct LaneGroup {
  uint32_t row, lane, size;

  /// lanes: of a block, a power of two; more threads than that have the places of its first ones.
  __device__ LaneGroup(uint32_t group_shift, uint32_t lanes) {
    const uint32_t thread = blockIdx.x * lanes + (threadIdx.x & (lanes - 1));
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

/// Grid and block of a launch by lane groups; blocks 0: it cannot be one.
struct LaneGroupLaunch {
  unsigned blocks = 0, threads = 0;
  friend bool operator==(const LaneGroupLaunch&, const LaneGroupLaunch&) = default;
};

/// For `rows` requests. A list is made by one block, or by as many as the exchange has words for.
[[nodiscard]] constexpr LaneGroupLaunch select_lane_group_launch(int64_t rows, int group_shift,
                                                                 bool is_listed,
                                                                 bool has_list_sums) {
  const int64_t max_blocks = !is_listed      ? std::numeric_limits<int32_t>::max()
                             : has_list_sums ? kMaxListBlocks
                                             : 1;
  const int64_t lanes = std::max<int64_t>(rows, 1) << group_shift;
  for (int threads = kGroupThreads; threads <= kMaxGroupThreads; threads *= 2) {
    const int64_t blocks = ceil_div(lanes, threads);
    const bool is_fine = threads >= kFewGroupThreads || blocks <= kManyGroupBlocks;
    if (blocks <= max_blocks && is_fine) {
      return {static_cast<unsigned>(blocks), static_cast<unsigned>(threads)};
    }
  }
  return {};
}
static_assert(select_lane_group_launch(256, 2, true, true) == LaneGroupLaunch{16, 64});
static_assert(select_lane_group_launch(256, 0, true, false) == LaneGroupLaunch{1, 256});
static_assert(select_lane_group_launch(256, 2, true, false) == LaneGroupLaunch{});

/// The lanes for a request of `tokens` tokens; -1 where a warp has too few.
[[nodiscard]] constexpr int select_group_shift(int64_t tokens) {
  for (int shift = 0; shift < 5; ++shift) {
    if (tokens <= int64_t{1} << shift) return shift;
  }
  return -1;
}
static_assert(select_group_shift(1) == 0 && select_group_shift(4) == 2 &&
              select_group_shift(5) == 3);
static_assert(select_group_shift(16) == 4 && select_group_shift(17) == -1);

/// A Count: clamped by the host, or read on the device where `at` is there.
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
