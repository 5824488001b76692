#pragma once

#include "cuda/cluster_cuda.h"
#include "cuda/memory_cuda.h"
#include "cuda/warp.h"

#include "ops/sampling/row_state_cuda.h"
#include "ops/sampling/sample_params.h"

namespace heddle::cuda::sampling {

/// The logits of a thread. A row is cut into chunks of 4 kRowThreads logits, which the blocks of a
/// cluster take in turn; of a chunk each thread has four neighbours.
inline constexpr int kChunk = 4 * kRowThreads;

/// A Cluster (row_search_cuda.h) on a GPU: its blocks keep the first chunks of theirs in shared
/// memory. A thread reads there only what it has copied itself.
class DeviceCluster {
 public:
  /// The row is [vocab_size] and `cache` holds cached_chunks of it.
  __device__ DeviceCluster(BlockState& own, const float* row, int64_t vocab_size, float4* cache,
                           int cached_chunks)
      : own_(own),
        row_(row),
        vocab_size_(static_cast<uint32_t>(vocab_size)),
        cache_(cache),
        cached_chunks_(static_cast<uint32_t>(cached_chunks)),
        num_blocks_(static_cast<int>(cluster_size())),
        rank_(static_cast<int>(cluster_rank())),
        is_aligned_(reinterpret_cast<uintptr_t>(row) % sizeof(float4) == 0) {}

  /// Copies the cached chunks.
  __device__ void load() {
    for (uint32_t c = 0; c < cached_chunks_; ++c) {
      const uint32_t id = first_id(c);
      if (id >= vocab_size_) break;
      float4* const to = cache_ + c * kRowThreads + threadIdx.x;
      const uint32_t left = vocab_size_ - id, n = left < 4 ? left : 4;
      if (is_aligned_ && n == 4) {
        copy_async_16(to, row_ + id, static_cast<int>(sizeof(float4)));
      } else {
        for (uint32_t i = 0; i < n; ++i) {
          copy_async_4(reinterpret_cast<float*>(to) + i, row_ + id + i);
        }
      }
    }
    commit_copies();
    wait_for_copies<0>();
  }

  [[nodiscard]] __device__ int num_blocks() const { return num_blocks_; }
  [[nodiscard]] __device__ bool is_leader() const { return rank_ == 0; }
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
    if (num_blocks_ == 1) return __syncthreads();
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
  template <class F>
  __device__ void leader_each(const F& f) const {
    f(own_, static_cast<int>(threadIdx.x));
    __syncthreads();
  }
  /// What is past the end of the row is -infinity.
  template <class F>
  __device__ void tokens(int /*rank*/, int /*thread*/, const F& f) const {
    for (uint32_t c = 0;; ++c) {
      const uint32_t id = first_id(c);
      if (id >= vocab_size_) break;
      const float4 four = c < cached_chunks_ ? cache_[c * kRowThreads + threadIdx.x] : load(id);
      const float logits[4] = {four.x, four.y, four.z, four.w};
      const uint32_t left = vocab_size_ - id;
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) {
        f(i < left ? logits[i] : -heddle::sampling::kInfinity, id + i);
      }
    }
  }

  template <class F>
  __device__ void largest_of_groups(const F& f) const {
    float most = f(rank_, static_cast<int>(threadIdx.x));
    const int width = kRowThreads / kGroups * num_blocks_;
    for (int step = width / 2; step > 0; step /= 2) {
      most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, step));
    }
    if (int(threadIdx.x) % width == 0) own_.group_maxima[int(threadIdx.x) / width] = most;
    meet();
  }
  __device__ void extremes(float& largest, float& bound) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    static_assert(kGroups == 4 * kWarpSize);
    const float* const maxima = own_.all_group_maxima + 4 * lane;
    const float first = fmaxf(maxima[0], maxima[1]), second = fmaxf(maxima[2], maxima[3]);
    largest = fmaxf(first, second);
    bound = fminf(first, second);
#pragma unroll
    for (int step = kWarpSize / 2; step > 0; step /= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, step));
      bound = fminf(bound, __shfl_xor_sync(kAllLanes, bound, step));
    }
  }
  template <int kNumSums, class F>
  __device__ void sum(const F& f) const {
    auto sums = f(own_, rank_, static_cast<int>(threadIdx.x));
    if constexpr (kNumSums > 0) {
      __shared__ uint64_t partial[kNumSums][kWarps];
#pragma unroll
      for (int i = 0; i < kNumSums; ++i) {
        for (int step = kWarpSize / 2; step > 0; step /= 2) {
          sums.a[i] += __shfl_xor_sync(kAllLanes, sums.a[i], step);
        }
        if (threadIdx.x % kWarpSize == 0) partial[i][threadIdx.x / kWarpSize] = sums.a[i];
      }
      __syncthreads();
      if (threadIdx.x < kNumSums) {
        uint64_t all = 0;
        for (int w = 0; w < kWarps; ++w) all += partial[threadIdx.x][w];
        own_.units[threadIdx.x] = all;
      }
    }
    meet();
  }
  static __device__ uint32_t add(uint32_t& to, uint32_t n) { return atomicAdd(&to, n); }
  static __device__ void lower(uint32_t& least, uint32_t id) { atomicMin(&least, id); }

  /// Sorts ascending: a bitonic network, of which a warp does the steps within it by shuffles.
  __device__ void sort(int n) const {
    const auto t = static_cast<int>(threadIdx.x);
    uint64_t place = t < n ? own_.list[t] : ~uint64_t{0};
    for (int size = 2; size / 2 < n; size *= 2) {
      for (int step = size / 2; step > 0; step /= 2) {
        uint64_t other;
        if (step >= kWarpSize) {
          own_.list[t] = place;
          __syncthreads();
          other = own_.list[t ^ step];
          __syncthreads();
        } else {
          other = __shfl_xor_sync(kAllLanes, place, step);
        }
        const bool keeps_less = ((t & step) == 0) == ((t & size) == 0);
        if ((other < place) == keeps_less) place = other;
      }
    }
    own_.list[t] = place;
    __syncthreads();
  }
  template <class F>
  __device__ void scan(int n, const F& f, uint64_t* units, uint64_t* counts) const {
    __shared__ Mass of_warps[kWarps];
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
    for (int w = 0; w < warp; ++w) {
      sum.units += of_warps[w].units;
      sum.count += of_warps[w].count;
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
    if (int(threadIdx.x) < num_blocks_) of(static_cast<int>(threadIdx.x)).decision = decision;
  }
  [[nodiscard]] __device__ Decision decision() const { return own_.decision; }

 private:
  static constexpr int kWarps = kRowThreads / kWarpSize;

  /// Of this thread's part of this block's chunk c.
  [[nodiscard]] __device__ uint32_t first_id(uint32_t c) const {
    return (c * static_cast<uint32_t>(num_blocks_) + static_cast<uint32_t>(rank_)) * kChunk +
           4 * threadIdx.x;
  }
  [[nodiscard]] __device__ float4 load(uint32_t id) const {
    const float* const from = row_ + id;
    const uint32_t left = vocab_size_ - id;
    if (is_aligned_ && left >= 4) return *reinterpret_cast<const float4*>(from);
    float4 four{};
    four.x = from[0];
    if (left > 1) four.y = from[1];
    if (left > 2) four.z = from[2];
    if (left > 3) four.w = from[3];
    return four;
  }

  BlockState& own_;
  const float* const row_;
  const uint32_t vocab_size_;
  float4* const cache_;
  const uint32_t cached_chunks_;
  const int num_blocks_, rank_;
  const bool is_aligned_;
};

}  // namespace heddle::cuda::sampling
