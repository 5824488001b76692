#pragma once

#include "cuda/bulk_copy_cuda.h"
#include "cuda/cluster_cuda.h"
#include "cuda/memory_cuda.h"
#include "cuda/warp.h"

#include "ops/sampling/sample/row_ring_cuda.h"
#include "ops/sampling/sample/row_state_cuda.h"
#include "ops/sampling/sample/sample_params.h"

namespace heddle::cuda::sampling {

/// A Cluster (row_search_cuda.h) on a GPU.
class DeviceCluster {
 public:
  /// `ring` brings the rows that are collected.
  __device__ DeviceCluster(BlockState& own, RowRing* ring, const LogitRows& rows,
                           const RowLayout& layout)
      : own_(own),
        ring_(ring),
        rows_(rows),
        layout_(layout),
        rank_(static_cast<int>(cluster_rank())) {}

  /// The steps that follow are those of a row whose logits have come: the ring's next one.
  __device__ void start_row(int64_t row) {
    row_ = rows_.logits + row * rows_.row_stride;
    ring_->start_row();
  }
  /// They are those of a row that is not there any more. It is read from memory.
  __device__ void start_search(int64_t row, int leader) {
    row_ = rows_.logits + row * rows_.row_stride;
    leader_ = leader;
  }
  /// The row is read no more.
  __device__ void end_row() { ring_->release_from(0); }

  [[nodiscard]] __device__ int num_blocks() const { return static_cast<int>(layout_.num_blocks); }
  [[nodiscard]] __device__ int rank() const { return rank_; }
  [[nodiscard]] __device__ bool is_leader() const { return rank_ == leader_; }
  [[nodiscard]] __device__ int leader_rank() const { return leader_; }
  /// In the threads of the leader.
  [[nodiscard]] __device__ BlockState& leader() const { return own_; }
  [[nodiscard]] __device__ BlockState& of(int rank) const {
#if __CUDA_ARCH__ >= 900
    BlockState* there;
    asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(&own_), "r"(rank));
    return *there;
#else
    return own_;
#endif
  }
  __device__ void meet() const {
    if (num_blocks() == 1) return __syncthreads();
    arrive_at_cluster();
    wait_for_cluster();
  }

  template <class F>
  __device__ void each(const F& f) const {
    f(own_, rank_, static_cast<int>(threadIdx.x));
    meet();
  }
  template <class F>
  __device__ void each_in_block(const F& f) const {
    f(own_, rank_, static_cast<int>(threadIdx.x));
    __syncthreads();
  }
  /// No thread waits, except lanes for their warp.
  template <class F>
  __device__ void run(const F& f) const {
    f(own_, rank_, static_cast<int>(threadIdx.x));
    __syncwarp();
  }
  template <class F>
  __device__ void leader_each(const F& f) const {
    f(own_, static_cast<int>(threadIdx.x));
    __syncthreads();
  }
  [[nodiscard]] __device__ float logit(uint32_t id) const { return row_[id]; }
  template <class F>
  __device__ void tokens(int rank, int thread, const F& f) const {
    fours(
        rank, thread, [](const float4&) { return true; }, f);
  }
  template <class F, class G>
  __device__ void fours(int /*rank*/, int /*thread*/, const F& f, const G& look_at,
                        bool is_last = false) const {
    const auto num_chunks = static_cast<int>(layout_.num_chunks);
    const int num_cached = ring_ == nullptr ? 0 : ring_->slots_per_row();
    int c = 0;
#pragma unroll 1
    for (; c < num_cached && c + kBatch <= num_chunks; c += kBatch) {
      const float4* const batch = ring_->batch(c);
      float4 four[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) four[i] = batch[i * kWarpSize];
      uint32_t marked = 0;
#pragma unroll
      for (int i = 0; i < kBatch; ++i) marked |= f(four[i]) ? 1u << i : 0u;
#pragma unroll 1
      for (; marked != 0; marked &= marked - 1) {
        const int i = __ffs(static_cast<int>(marked)) - 1;
        look_at_four(batch[i * kWarpSize], first_id(c + i), look_at);
      }
      if (is_last) ring_->release_batch();
    }
    if (ring_ == nullptr) {
#pragma unroll 1
      for (; c + kBatch <= num_chunks; c += kBatch) {
        float4 four[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; ++i) four[i] = load(first_id(c + i));
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          if (f(four[i])) look_at_four(four[i], first_id(c + i), look_at);
        }
      }
    }
#pragma unroll 1
    for (; c < num_chunks; ++c) {
      const uint32_t id = first_id(c);
      const float4 four =
          c < num_cached ? ring_->batch(c / kBatch * kBatch)[c % kBatch * kWarpSize] : load(id);
      if (f(four)) look_at_four(four, id, look_at);
    }
    if (is_last) ring_->release_from(num_chunks / kBatch * kBatch);
  }
  /// Whether the warp has a logit of at least `least`, in this row.
  [[nodiscard]] __device__ bool has_from(int /*rank*/, int /*thread*/, float least) const {
    return __any_sync(kAllLanes, largest_ >= least) != 0;
  }

  template <class F>
  __device__ void largest_of_groups(const F& f) {
    largest_ = f(rank_, static_cast<int>(threadIdx.x));
    const int width = kRowThreads / kGroups * num_blocks(), t = static_cast<int>(threadIdx.x);
    float most = largest_;
    for (int step = width / 2; step > 0; step /= 2) {
      most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, step));
    }
    ++num_exchanges_;
    const int at = num_exchanges_ % 2, group = rank_ * (kRowThreads / width) + t / width;
    float* const maximum = &own_.group_maxima[at][group];
    if (num_blocks() == 1) {
      if (t % width == 0) *maximum = most;
      return __syncthreads();
    }
#if __CUDA_ARCH__ >= 900  // there are no clusters before
    PhaseBarrier& barrier = own_.maxima_come[at];
    __syncwarp();  // what the first warp did before is seen by all threads of the block
    if (t == 0) barrier.arrive_and_expect(kGroups * sizeof(float));
    if (t % width < num_blocks()) send_to_block(maximum, most, barrier, uint32_t(t % width));
    barrier.wait(static_cast<uint32_t>(num_exchanges_ / 2) % 2);
#endif
  }
  [[nodiscard]] __device__ RowBounds bounds() const {
    static_assert(kGroups == 4 * kWarpSize);
    using heddle::sampling::ascending_bits;
    const float first = group_maximum(0), second = group_maximum(1);
    const float third = group_maximum(2), fourth = group_maximum(3);
    const float high[2] = {fmaxf(first, second), fmaxf(third, fourth)};
    const float low = fmaxf(fminf(first, second), fminf(third, fourth));
    const float most = fmaxf(high[0], high[1]), next = fmaxf(fminf(high[0], high[1]), low);
    return {Places::logit_of_bits(__reduce_max_sync(kAllLanes, ascending_bits(most))),
            Places::logit_of_bits(__reduce_min_sync(kAllLanes, ascending_bits(next)))};
  }
  [[nodiscard]] __device__ float tighter_bound(const RowBounds& bounds, int num_groups) const {
    constexpr int kSteps = 8, kSlack = 8;
    float low = bounds.bound, high = bounds.largest;
    if (!(low > -heddle::sampling::kInfinity)) return low;
#pragma unroll 1
    for (int i = 0; i < kSteps; ++i) {
      const float middle = 0.5f * low + 0.5f * high;
      int count = 0;
#pragma unroll
      for (int j = 0; j < kGroups / kWarpSize; ++j) {
        count += __popc(__ballot_sync(kAllLanes, group_maximum(j) >= middle));
      }
      (count >= num_groups ? low : high) = middle;
      if (count >= num_groups && count <= num_groups + kSlack) break;
    }
    return low;
  }
  /// leader.warp_units[which] of this block's warps, where block `leader` leads.
  template <class F>
  __device__ void sum(int leader, int which, const F& f) const {
    uint64_t units = f(rank_, static_cast<int>(threadIdx.x));
#pragma unroll
    for (int step = kWarpSize / 2; step > 0; step /= 2) {
      units += __shfl_xor_sync(kAllLanes, units, step);
    }
    if (threadIdx.x % kWarpSize == 0) {
      of(leader).warp_units[which][rank_ * kRowWarps + int(threadIdx.x) / kWarpSize] = units;
    }
  }
  [[nodiscard]] __device__ uint64_t total(int which) const {
    uint64_t units = 0;
    for (int i = int(threadIdx.x) % kWarpSize; i < num_blocks() * kRowWarps; i += kWarpSize) {
      units += own_.warp_units[which][i];
    }
#pragma unroll
    for (int step = kWarpSize / 2; step > 0; step /= 2) {
      units += __shfl_xor_sync(kAllLanes, units, step);
    }
    return units;
  }
  static __device__ uint32_t add(uint32_t& to, uint32_t n) { return atomicAdd(&to, n); }
  static __device__ void lower(uint32_t& least, uint32_t id) { atomicMin(&least, id); }

  /// Sorts ascending: a bitonic network, of which a warp does the steps within it by shuffles. The
  /// others go through `list` and `sums` in turn. Warps past the end only wait for the others.
  __device__ void sort(int n) const {
    const auto t = static_cast<int>(threadIdx.x);
    int padded = kWarpSize;
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
  template <class F>
  __device__ void scan(int n, const F& f, uint64_t* units, uint64_t* counts) const {
    Mass* const of_warps = own_.warp_masses;
    const auto t = static_cast<int>(threadIdx.x), lane = t % kWarpSize, warp = t / kWarpSize;
    Mass sum{};
    if (t < n) sum = f(t);
#pragma unroll
    for (int step = 1; step < kWarpSize; step *= 2) {
      const uint64_t more = __shfl_up_sync(kAllLanes, sum.units, step);
      const uint64_t count = __shfl_up_sync(kAllLanes, sum.count, step);
      if (lane >= step) {
        sum.units += more;
        sum.count += count;
      }
    }
    if (lane == kWarpSize - 1) of_warps[warp] = sum;
    __syncthreads();
#pragma unroll
    for (int w = 0; w < kRowWarps - 1; ++w) {
      const Mass before = of_warps[w];
      sum.units += w < warp ? before.units : 0;
      sum.count += w < warp ? before.count : 0;
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
  __device__ void publish(const Decision& decision) const {
    if (int(threadIdx.x) < num_blocks()) of(static_cast<int>(threadIdx.x)).decision = decision;
  }
  [[nodiscard]] __device__ Decision decision() const { return own_.decision; }

 private:
  static constexpr int kBatch = kSlotBatch;

  /// Of groups that differ by lane; i < 4.
  [[nodiscard]] __device__ float group_maximum(int i) const {
    return own_.group_maxima[num_exchanges_ % 2][i * kWarpSize + threadIdx.x % kWarpSize];
  }
  template <class G>
  static __device__ void look_at_four(const float4& four, uint32_t id, const G& look_at) {
    look_at(four.x, id);
    look_at(four.y, id + 1);
    look_at(four.z, id + 2);
    look_at(four.w, id + 3);
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
  [[nodiscard]] __device__ uint32_t first_id(int chunk) const {
    return layout_.first_id(static_cast<uint32_t>(rank_), threadIdx.x,
                            static_cast<uint32_t>(chunk));
  }
  /// Four logits from memory; what is past the end of the row is -infinity.
  [[nodiscard]] __device__ float4 load(uint32_t id) const {
    const auto vocab_size = static_cast<uint32_t>(rows_.vocab_size);
    const float* const from = row_ + id;
    const bool is_aligned = reinterpret_cast<uintptr_t>(from) % sizeof(float4) == 0;
    if (is_aligned && id + 4 <= vocab_size) return *reinterpret_cast<const float4*>(from);
    constexpr float kNone = -heddle::sampling::kInfinity;
    return {id < vocab_size ? from[0] : kNone, id + 1 < vocab_size ? from[1] : kNone,
            id + 2 < vocab_size ? from[2] : kNone, id + 3 < vocab_size ? from[3] : kNone};
  }

  BlockState& own_;
  RowRing* const ring_;
  const LogitRows& rows_;
  const RowLayout& layout_;
  const int rank_;
  const float* row_ = nullptr;
  int leader_ = 0, num_exchanges_ = -1;
  float largest_ = 0.0f;
};

}  // namespace heddle::cuda::sampling
