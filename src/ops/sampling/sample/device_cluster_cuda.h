#pragma once

#include "cuda/bulk_copy_cuda.h"
#include "cuda/cluster_cuda.h"
#include "cuda/memory_cuda.h"
#include "cuda/warp.h"

#include "ops/sampling/sample/block_lists_cuda.h"
#include "ops/sampling/sample/row_ring_cuda.h"
#include "ops/sampling/sample/row_state_cuda.h"
#include "ops/sampling/sample/sample_params.h"

namespace heddle::cuda::sampling {

/// A Cluster (row_search_cuda.h) on a GPU.
class DeviceCluster : public BlockLists {
 public:
  /// `ring` brings the rows that are collected.
  __device__ DeviceCluster(BlockState& own, RowRing* ring, const LogitRows& rows,
                           const RowLayout& layout)
      : BlockLists(own),
        own_(own),
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
  __device__ void fours(int /*rank*/, int /*thread*/, const F& f, const G& look_at) const {
    look_at_chunks(0, int(layout_.num_chunks), f, look_at, false);
  }
  /// Those of a part; is_last: they are looked at no more, but for a search.
  template <class F, class G>
  __device__ void part_fours(int /*rank*/, int /*thread*/, uint32_t part, const F& f,
                             const G& look_at, bool is_last) const {
    const auto begin = static_cast<int>(part << layout_.part_bits);
    look_at_chunks(begin, begin + int(layout_.chunks_of_part(part)), f, look_at, is_last);
  }
  /// The first time that the row's logits are looked at: as they come. f(four logits, first id);
  /// with kIsLast they are not looked at again.
  template <bool kIsLast, class F>
  __device__ void stream(int /*rank*/, int /*thread*/, const F& f) const {
    const auto num_chunks = static_cast<int>(layout_.num_chunks);
    const int num_cached = ring_->slots_per_row();
    int c = 0;
#pragma unroll 1
    for (; c < num_cached; c += kBatch) {
      ring_->wait_for_batch();
      const float4* const batch = ring_->batch(c);
      if (c + kBatch <= num_chunks) {
        float4 four[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; ++i) four[i] = batch[i * kWarpSize];
#pragma unroll
        for (int i = 0; i < kBatch; ++i) f(four[i], first_id(c + i));
      } else {
#pragma unroll 1
        for (int i = 0; c + i < num_chunks; ++i) f(batch[i * kWarpSize], first_id(c + i));
      }
      if (kIsLast) ring_->release_batch();
    }
    far_chunks(c, num_chunks, f);
  }
  /// The largest logit of a thread, or -infinity, by the first look at a row; batch_maxima.
  [[nodiscard]] __device__ float largest_in_row(int rank, int thread) const {
    float* const maxima = own_.batch_maxima[threadIdx.x / kWarpSize];
    float most = -heddle::sampling::kInfinity, of_batch = most;
    int chunk = 0;
    const auto end_batch = [&] {
      const int batch = (chunk - 1) / kBatch;
      const float of_warp = Places::logit_of_bits(
          __reduce_max_sync(kAllLanes, heddle::sampling::ascending_bits(of_batch)));
      most = fmaxf(most, of_batch);
      if (batch < kMaxBatches - 1) of_batch = -heddle::sampling::kInfinity;
      if (threadIdx.x % kWarpSize == 0) {
        maxima[batch < kMaxBatches ? batch : kMaxBatches - 1] = of_warp;
      }
    };
    stream<false>(rank, thread, [&](const float4& four, uint32_t) {
      of_batch = fmaxf(of_batch, largest_of(four));
      if (++chunk % kBatch == 0) end_batch();
    });
    if (chunk % kBatch != 0) end_batch();
    __syncwarp();
    return fmaxf(most, of_batch);
  }
  /// look_at(logit, id) for all logits of at least `least`, and others in their neighbourhood.
  template <class G>
  __device__ void fours_from(int /*rank*/, int /*thread*/, float least, const G& look_at) const {
    const float* const maxima = own_.batch_maxima[threadIdx.x / kWarpSize];
    const auto num_chunks = static_cast<int>(layout_.num_chunks);
#pragma unroll 1
    for (int c = 0; c < num_chunks; c += kBatch) {
      const int batch = c / kBatch;
      if (!(maxima[batch < kMaxBatches ? batch : kMaxBatches - 1] >= least)) continue;
      const int end = c + kBatch < num_chunks ? c + kBatch : num_chunks;
      look_at_chunks(
          c, end, [&](const float4& four) { return largest_of(four) >= least; }, look_at, false);
    }
  }

  template <class F>
  __device__ void largest_of_groups(const F& f) {
    const float largest = f(rank_, static_cast<int>(threadIdx.x));
    static_assert(kRowThreads / kGroups * kMaxBlocks <= kWarpSize);
    const int width = kRowThreads / kGroups * num_blocks(), t = static_cast<int>(threadIdx.x);
    float most = largest;
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
    using heddle::sampling::ascending_bits;
    float most = group_maximum(0), next = -heddle::sampling::kInfinity;
#pragma unroll
    for (int i = 1; i < kGroupsPerLane; ++i) {
      const float x = group_maximum(i);
      next = fmaxf(next, fminf(most, x));
      most = fmaxf(most, x);
    }
    return {Places::logit_of_bits(__reduce_max_sync(kAllLanes, ascending_bits(most))),
            Places::logit_of_bits(__reduce_min_sync(kAllLanes, ascending_bits(next)))};
  }
  [[nodiscard]] __device__ float bound_of(const RowBounds& bounds, int num_groups) const {
    constexpr int kSteps = 10, kSlack = 8, kSure = 2 * kWarpSize;
    float low = bounds.bound, high = bounds.largest;
    if (!(low > -heddle::sampling::kInfinity)) return low;
    if (num_groups > kSure) low = least_of_most_groups(low);
#pragma unroll 1
    for (int i = 0; i < kSteps; ++i) {
      const float middle = 0.5f * low + 0.5f * high;
      unsigned of_lane = 0;
#pragma unroll
      for (int j = 0; j < kGroupsPerLane; ++j) of_lane += group_maximum(j) >= middle ? 1u : 0u;
      const auto count = static_cast<int>(__reduce_add_sync(kAllLanes, of_lane));
      (count >= num_groups ? low : high) = middle;
      if (count >= num_groups && count <= num_groups + kSlack) break;
    }
    return low;
  }
  /// The leader's segment_units of this block's warps: the largest f(rank, thread).
  template <class F>
  __device__ void lead(int leader, const F& f) const {
    const LeadingToken best = best_of_warp(f(rank_, static_cast<int>(threadIdx.x)));
    if (threadIdx.x % kWarpSize == 0) {
      of(leader).segment_units[rank_ * kRowWarps + int(threadIdx.x) / kWarpSize] = best.value;
    }
  }
  template <class F>
  __device__ void lead_groups(int leader, const F& f) {
    const LeadingToken best = f(rank_, static_cast<int>(threadIdx.x));
    lead(leader, [&](int, int) { return best; });
    largest_of_groups([&](int, int) { return best.logit(); });
  }
  /// The leader's: of these the largest.
  [[nodiscard]] __device__ LeadingToken leading() const {
    uint64_t best = 0;
    for (int i = int(threadIdx.x) % kWarpSize; i < num_blocks() * kRowWarps; i += kWarpSize) {
      const uint64_t other = own_.segment_units[i];
      best = other > best ? other : best;
    }
    return best_of_warp(LeadingToken(best));
  }
  /// Of the leader, for this block's warps: segment_units, the sums of f(rank, thread, part) ...
  template <class F>
  __device__ void sum_segments(int leader, const F& f) const {
    BlockState& its = of(leader);
#pragma unroll 1
    for (uint32_t part = 0; part < layout_.num_parts(); ++part) {
      const uint64_t units = sum_of_warp(f(rank_, static_cast<int>(threadIdx.x), part));
      if (threadIdx.x % kWarpSize != 0) continue;
      its.segment_units[layout_.segment(uint32_t(rank_), part, threadIdx.x / kWarpSize)] = units;
    }
  }
  /// ... and one_units, over all parts.
  template <class F>
  __device__ void sum_warps(int leader, const F& f) const {
    uint64_t units = 0;
#pragma unroll 1
    for (uint32_t part = 0; part < layout_.num_parts(); ++part) {
      units += f(rank_, static_cast<int>(threadIdx.x), part);
    }
    units = sum_of_warp(units);
    if (threadIdx.x % kWarpSize == 0) {
      of(leader).one_units[rank_ * kRowWarps + int(threadIdx.x) / kWarpSize] = units;
    }
  }
  /// The leader's: of segment_units, or of one_units.
  [[nodiscard]] __device__ uint64_t total(bool of_one) const {
    const uint64_t* const all = of_one ? own_.one_units : own_.segment_units;
    const int n = of_one ? num_blocks() * kRowWarps : int(layout_.num_segments());
    uint64_t units = 0;
    for (int i = int(threadIdx.x) % kWarpSize; i < n; i += kWarpSize) units += all[i];
    return sum_of_warp(units);
  }
  static __device__ uint32_t add(uint32_t& to, uint32_t n) { return atomicAdd(&to, n); }
  static __device__ void lower(uint32_t& least, uint32_t id) { atomicMin(&least, id); }

  template <class F>
  __device__ void row_part(int /*thread*/, bool all, const F& f) const {
    for (uint32_t i = threadIdx.x / kWarpSize; i < layout_.num_segments(); i += kRowWarps) {
      look_at_segment(i, all, f);
    }
  }
  template <class Sum, class F>
  __device__ void sum_row(const Sum& none, const F& f) const {
#pragma unroll 1
    for (uint32_t i = threadIdx.x / kWarpSize; i < layout_.num_segments(); i += kRowWarps) {
      Sum sum = none;
      look_at_segment(i, true, [&](const float4& four, uint32_t id) { f(sum, four, id); });
      const uint64_t units = sum_of_warp(sum.total());
      if (threadIdx.x % kWarpSize == 0) own_.segment_units[i] = units;
    }
    __syncthreads();
  }
  static __device__ void lower_by_warp(uint32_t& least, uint32_t bits) {
    const uint32_t of_warp = __reduce_min_sync(kAllLanes, bits);
    if (threadIdx.x % kWarpSize == 0) atomicMin(&least, of_warp);
  }
  __device__ void publish(const Decision& decision) const {
    if (int(threadIdx.x) < num_blocks()) of(static_cast<int>(threadIdx.x)).decision = decision;
  }
  [[nodiscard]] __device__ Decision decision() const { return own_.decision; }

 private:
  static constexpr int kBatch = kSlotBatch;
  static constexpr float kLargest = heddle::sampling::kInfinity;

  /// Chunks [c, num_chunks); c is a multiple of kBatch.
  template <class F, class G>
  __device__ void look_at_chunks(int c, int num_chunks, const F& f, const G& look_at,
                                 bool is_last) const {
    const int num_cached = ring_ == nullptr ? 0 : ring_->slots_per_row();
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
#pragma unroll 1
    for (; c < num_cached && c < num_chunks; ++c) {
      const float4 four = ring_->batch(c / kBatch * kBatch)[c % kBatch * kWarpSize];
      if (f(four)) look_at_four(four, first_id(c), look_at);
    }
    far_chunks(c, num_chunks, [&](const float4& four, uint32_t id) {
      if (f(four)) look_at_four(four, id, look_at);
    });
    if (is_last && num_chunks == int(layout_.num_chunks)) {
      ring_->release_from(num_chunks / kBatch * kBatch);
    }
  }
  /// f(four logits, first id) of chunks [c, num_chunks), from memory, as many at once as keep it
  /// busy.
  template <class F>
  __device__ void far_chunks(int c, int num_chunks, const F& f) const {
    const bool is_aligned = reinterpret_cast<uintptr_t>(row_) % sizeof(float4) == 0;
#pragma unroll 1
    for (; is_aligned && c + kBatch <= num_chunks; c += kBatch) {
      const uint32_t id = first_id(c);  // kBatch chunks of a part are next to one another
      constexpr uint32_t kChunkIds = 4 * kWarpSize;
      const uint32_t end = id - 4 * (threadIdx.x % kWarpSize) + kBatch * kChunkIds;
      if (end > uint32_t(rows_.vocab_size)) break;  // for all lanes: f may be for whole warps
      float4 four[kBatch];
#pragma unroll
      for (uint32_t k = 0; k < kBatch; ++k) {
        four[k] = *reinterpret_cast<const float4*>(row_ + id + k * kChunkIds);
      }
#pragma unroll
      for (uint32_t k = 0; k < kBatch; ++k) f(four[k], id + k * kChunkIds);
    }
#pragma unroll 1
    for (; c < num_chunks; ++c) f(load(first_id(c)), first_id(c));
    __syncwarp();
  }
  /// The least of all lanes' smallest maxima but few, `low` where that is -infinity.
  [[nodiscard]] __device__ float least_of_most_groups(float low) const {
    constexpr int kNum = 3;
    float least[kNum] = {kLargest, kLargest, kLargest};  // ascending
#pragma unroll
    for (int i = 0; i < kGroupsPerLane; ++i) {
      float x = group_maximum(i);
#pragma unroll
      for (int k = 0; k < kNum; ++k) {
        const float smaller = fminf(least[k], x);
        x = fmaxf(least[k], x);
        least[k] = smaller;
      }
    }
    using heddle::sampling::ascending_bits;
    const float third =
        Places::logit_of_bits(__reduce_min_sync(kAllLanes, ascending_bits(least[kNum - 1])));
    return third > -heddle::sampling::kInfinity ? third : low;
  }
  /// Of groups that differ by lane; i < kGroupsPerLane.
  [[nodiscard]] __device__ float group_maximum(int i) const {
    return own_.group_maxima[num_exchanges_ % 2][i * kWarpSize + threadIdx.x % kWarpSize];
  }
  /// Segment i of the row, or the first chunk of it, from memory.
  template <class F>
  __device__ void look_at_segment(uint32_t i, bool all, const F& f) const {
    const uint32_t part = i / kRowWarps % layout_.num_parts();
    const int num_chunks = all ? static_cast<int>(layout_.chunks_of_part(part)) : 1;
    const uint32_t first = layout_.first_id_of(i) + 4 * (threadIdx.x % kWarpSize);
    constexpr uint32_t kChunkIds = 4 * kWarpSize;
    const bool is_aligned = reinterpret_cast<uintptr_t>(row_) % sizeof(float4) == 0;
    int c = 0;
#pragma unroll 1
    for (; c + kBatch <= num_chunks; c += kBatch) {
      const uint32_t id = first + uint32_t(c) * kChunkIds;
      const uint32_t end = id - 4 * (threadIdx.x % kWarpSize) + kBatch * kChunkIds;
      if (!is_aligned || end > uint32_t(rows_.vocab_size)) break;
      float4 four[kBatch];
#pragma unroll
      for (uint32_t k = 0; k < kBatch; ++k) {
        four[k] = *reinterpret_cast<const float4*>(row_ + id + k * kChunkIds);
      }
#pragma unroll
      for (uint32_t k = 0; k < kBatch; ++k) f(four[k], id + k * kChunkIds);
    }
#pragma unroll 1
    for (; c < num_chunks; ++c) {
      const uint32_t id = first + uint32_t(c) * kChunkIds;
      f(load(id), id);
    }
    __syncwarp();
  }
  template <class G>
  static __device__ void look_at_four(const float4& four, uint32_t id, const G& look_at) {
    look_at(four.x, id);
    look_at(four.y, id + 1);
    look_at(four.z, id + 2);
    look_at(four.w, id + 3);
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
};

}  // namespace heddle::cuda::sampling
