#pragma once

#include <bit>

#include "cuda/warp.h"

#include "ops/sampling/sample/row_state_cuda.h"

namespace heddle::cuda::sampling {

/// What the threads of a block do together with its list and sums: functions of a Cluster
/// (row_search_cuda.h), for its leader.
class BlockLists {
 public:
  explicit __device__ BlockLists(BlockState& own) : own_(own) {}

  /// Sorts ascending: a bitonic network, of which a warp does the steps within it by shuffles. The
  /// others go through `list` and `sums` in turn. Warps past the end only wait for the others.
  __device__ void sort(int n) const {
    if (n <= kFew) return sort_few(n);
    const auto t = static_cast<int>(threadIdx.x);
    int padded = 2 * kFew;
    while (padded < n) padded *= 2;
    const bool is_in = t < padded;
    uint64_t place = t < n ? own_.list[t] : ~uint64_t{0};
    if (is_in) {
#pragma unroll
      for (int size = 2; size <= kWarpSize; size *= 2) {
        merge_in_warp(place, size / 2, (t & size) == 0);
      }
    }
    uint64_t* buffer = own_.sums;
    for (int size = 2 * kWarpSize; size <= padded; size *= 2) {
      const bool ascends = (t & size) == 0;
      for (int step = size / 2; step >= kWarpSize; step /= 2) {
        if (is_in) buffer[t] = place;
        __syncthreads();
        if (is_in) {
          const uint64_t other = buffer[t ^ step];
          if ((other < place) == (((t & step) == 0) == ascends)) place = other;
        }
        buffer = buffer == own_.sums ? own_.list : own_.sums;
      }
      if (is_in) merge_in_warp(place, kWarpSize / 2, ascends);
    }
    __syncthreads();
    if (is_in) own_.list[t] = place;
    __syncthreads();
  }
  template <class F, class G>
  __device__ void pairs(int n, const F& f, const G& g) const {
    const FewPairs own(n);
    uint64_t sum = 0;
    if (own.i < n) {
      for (int j = own.first; j < n; j += own.step) sum += f(own.i, j);
    }
    for (int step = own.step / 2; step > 0; step /= 2) {
      sum += __shfl_xor_sync(kAllLanes, sum, step);
    }
    if (own.i < n && own.first == 0) g(own_, own.i, sum);
    __syncthreads();
  }
  template <class F>
  __device__ void scan(int n, const F& f, uint64_t* units, uint64_t* counts) const {
    Mass* const of_warps = own_.warp_masses;
    const auto t = static_cast<int>(threadIdx.x), lane = t % kWarpSize, warp = t / kWarpSize;
    const bool is_in = warp * kWarpSize < n;
    Mass sum{};
    if (t < n) sum = f(t);
    if (is_in) {
      sum.units = up_to_lane(sum.units);
      if (counts != nullptr) sum.count = up_to_lane(sum.count);
      if (lane == kWarpSize - 1) of_warps[warp] = sum;
    }
    __syncthreads();
    if (is_in && warp > 0) {
      const Mass before = lane < warp ? of_warps[lane] : Mass{};
      sum.units += sum_of_warp(before.units);
      if (counts != nullptr) sum.count += sum_of_warp(before.count);
    }
    if (t < n) {
      units[t] = sum.units;
      if (counts != nullptr) counts[t] = sum.count;
    }
    __syncthreads();
  }
  template <class F>
  __device__ int count_if(int n, const F& f) const {
    const auto t = static_cast<int>(threadIdx.x);
    return __syncthreads_count(t < n && f(t));
  }

 protected:
  static __device__ uint64_t sum_of_warp(uint64_t units) {
#pragma unroll
    for (int step = kWarpSize / 2; step > 0; step /= 2) {
      units += __shfl_xor_sync(kAllLanes, units, step);
    }
    return units;
  }
  static __device__ LeadingToken best_of_warp(LeadingToken own) {
    const auto high = static_cast<uint32_t>(own.value >> 32);
    const uint32_t most = __reduce_max_sync(kAllLanes, high);
    const uint32_t low =
        __reduce_max_sync(kAllLanes, high == most ? static_cast<uint32_t>(own.value) : 0u);
    return LeadingToken(uint64_t{most} << 32 | low);
  }

 private:
  static constexpr int kFew = kFewPairs;

  /// The pairs of n numbers that a thread takes, n <= kFew: of number i every `step`th. All threads
  /// have the same step, and neighbouring lanes what belongs to one i.
  struct FewPairs {
    int i, first, step;

    explicit __device__ FewPairs(int n) {
      int bits = 5;
      while (1 << bits < n) ++bits;
      const int step_bits = std::bit_width(unsigned{kRowThreads}) - 1 - bits;
      step = 1 << step_bits;
      i = static_cast<int>(threadIdx.x) >> step_bits;
      first = static_cast<int>(threadIdx.x) & (step - 1);
    }
  };
  /// Each goes to the place that is the number of those below it.
  __device__ void sort_few(int n) const {
    const FewPairs own(n);
    const uint64_t place = own.i < n ? own_.list[own.i] : 0;
    uint32_t rank = 0;
    for (int j = own.first; j < n; j += own.step) rank += own_.list[j] < place ? 1u : 0u;
    for (int step = own.step / 2; step > 0; step /= 2) {
      rank += __shfl_xor_sync(kAllLanes, rank, step);
    }
    __syncthreads();
    if (own.i < n && own.first == 0) own_.list[rank] = place;
    __syncthreads();
  }
  static __device__ uint64_t up_to_lane(uint64_t sum) {
    const auto lane = static_cast<int>(threadIdx.x % kWarpSize);
#pragma unroll
    for (int step = 1; step < kWarpSize; step *= 2) {
      const uint64_t more = __shfl_up_sync(kAllLanes, sum, step);
      if (lane >= step) sum += more;
    }
    return sum;
  }
  /// Steps `step`, half of that and so on of a bitonic merge.
  static __device__ void merge_in_warp(uint64_t& place, int step, bool ascends) {
#pragma unroll
    for (; step > 0; step /= 2) {
      const uint64_t other = __shfl_xor_sync(kAllLanes, place, step);
      const bool is_low = (static_cast<int>(threadIdx.x) & step) == 0;
      if ((other < place) == (is_low == ascends)) place = other;
    }
  }

  BlockState& own_;
};

}  // namespace heddle::cuda::sampling
