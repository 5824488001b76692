#pragma once

#include "cuda/bulk_copy_cuda.h"
#include "cuda/cluster_cuda.h"
#include "cuda/memory_cuda.h"
#include "cuda/warp.h"

#include "ops/sampling/sample/row_state_cuda.h"
#include "ops/sampling/sample/sample_params.h"

namespace heddle::cuda::sampling {

/// How many slots of four logits a thread has, and how many of them a row takes; both multiples of
/// kSlotBatch.
struct RingShape {
  int num_slots, slots_per_row;
};

/// The logits of the rows that a block takes, one after the other, on their way through shared
/// memory: each warp has the logits of its segments (RowLayout) copied into slots of its own, while
/// the rows before them are worked on, and waits for nothing but its copies. Those of a batch are
/// not copied before all of the previous one is done. The copy engine does it, so that no warp is
/// held up by loads that memory is not ready for; it takes pieces of 16 bytes at multiples of 16
/// alone, lanes copy what is not so.
class RowRing {
 public:
  /// own.slots are [kRowWarps, num_slots, 32]. Rows of a batch are `step` apart.
  __device__ RowRing(const LogitRows& rows, const RowLayout& layout, const RingShape& shape,
                     BlockState& own, uint32_t step)
      : rows_(rows),
        layout_(layout),
        shape_(shape),
        slots_(own.slots + threadIdx.x / kWarpSize * shape.num_slots * kWarpSize),
        copied_(own.copied[threadIdx.x / kWarpSize]),
        step_(step) {
    init_barriers();
  }
  /// The rows of a batch, whose first ones come from now on. The slots are not in use.
  __device__ void start_batch(uint32_t first_row, int num_rows) {
    next_row_ = first_row;
    rows_left_ = num_rows;
    next_chunk_ = write_slot_ = 0;
    for (int i = 0; i < shape_.num_slots; i += kSlotBatch) copy_batch();
    write_slot_ = 0;
  }

  /// What follows is of the next row, each batch of which is waited for once, in order.
  __device__ void start_row() {
    read_slot_ = wait_slot_ = write_slot_;  // the oldest
    wait_for_copies<0>();
  }
  /// The next batch of the row has come.
  __device__ void wait_for_batch() {
#if __CUDA_ARCH__ >= 900
    const int i = wait_slot_ / kSlotBatch;
    copied_[i].wait(parities_ >> i & 1);
    parities_ ^= 1u << i;
    wait_slot_ += kSlotBatch;
    if (wait_slot_ == shape_.num_slots) wait_slot_ = 0;
#endif
  }
  /// Chunk c of this row, a multiple of kSlotBatch, and those after it, 32 apart.
  [[nodiscard]] const __device__ float4* batch(int c) const {
    int slot = read_slot_ + c;
    if (slot >= shape_.num_slots) slot -= shape_.num_slots;
    return slots_ + slot * kWarpSize + threadIdx.x % kWarpSize;
  }
  /// kSlotBatch more slots of this row, in their order, are for other rows now. By whole warps.
  __device__ void release_batch() {
    __syncwarp();
    copy_batch();
  }
  /// All of them from chunk c on.
  __device__ void release_from(int c) {
    __syncwarp();
#pragma unroll 1
    for (; c < shape_.slots_per_row; c += kSlotBatch) copy_batch();
  }
  [[nodiscard]] __device__ int slots_per_row() const { return shape_.slots_per_row; }

 private:
  [[nodiscard]] static __device__ bool is_first_lane() { return threadIdx.x % kWarpSize == 0; }

  __device__ void init_barriers() {
#if __CUDA_ARCH__ >= 900
    if (is_first_lane()) {
      for (int i = 0; i < shape_.num_slots / kSlotBatch; ++i) copied_[i].init(1);
      show_to_copy_engine();
    }
    __syncwarp();
#endif
  }
  /// Starts copying kSlotBatch chunks of the row, or as many as are left, into the oldest slots.
  __device__ void copy_batch() {
    if (rows_left_ > 0) {
      const auto chunk = static_cast<uint32_t>(next_chunk_), left = layout_.num_chunks - chunk;
      const uint32_t first = layout_.first_id(cluster_rank(), threadIdx.x & ~31u, chunk);
      copy(first, kWarpIds * (left < kSlotBatch ? left : kSlotBatch));
    }
    write_slot_ += kSlotBatch;
    if (write_slot_ == shape_.num_slots) write_slot_ = 0;
    next_chunk_ += kSlotBatch;
    if (next_chunk_ == shape_.slots_per_row) {
      next_chunk_ = 0;
      next_row_ += step_;
      --rows_left_;
    }
  }
  /// The ids [first, first + num).
  __device__ void copy(uint32_t first, uint32_t num) {
    const auto vocab_size = static_cast<uint32_t>(rows_.vocab_size);
    const float* const from = rows_.logits + next_row_ * rows_.row_stride + first;
    float4* const to = slots_ + write_slot_ * kWarpSize;
    PhaseBarrier& barrier = copied_[write_slot_ / kSlotBatch];
#if __CUDA_ARCH__ >= 900
    const bool is_aligned = reinterpret_cast<uintptr_t>(from) % sizeof(float4) == 0;
    if (is_aligned && first + num <= vocab_size) {
      if (is_first_lane()) load(to, from, num, barrier);
      return;
    }
#endif
    copy_by_lanes(to, from, num, first < vocab_size ? vocab_size - first : 0, barrier);
  }
  static __device__ void load(float4* to, const float* from, uint32_t num, PhaseBarrier& barrier) {
#if __CUDA_ARCH__ >= 900
    const auto bytes = static_cast<uint32_t>(num * sizeof(float));
    barrier.arrive_and_expect(bytes);
    if (bytes > 0) bulk_load(to, from, bytes, barrier);
#endif
  }
  /// The first num logits, of which num_left exist; what is past the end of the row is
  /// -infinity.
  static __noinline__ __device__ void copy_by_lanes(float4* to, const float* from, uint32_t num,
                                                    uint32_t num_left, PhaseBarrier& barrier) {
    const uint32_t in_row = num_left < num ? num_left : num;
    const bool is_aligned = reinterpret_cast<uintptr_t>(from) % sizeof(float4) == 0;
#if __CUDA_ARCH__ >= 900
    const bool by_engine = is_aligned && in_row % 4 == 0;
    if (is_first_lane()) load(to, from, by_engine ? in_row : 0, barrier);
#else
    constexpr bool by_engine = false;
#endif
#pragma unroll 1
    for (uint32_t i = threadIdx.x % kWarpSize; i < num / 4; i += kWarpSize) {
      if (4 * i + 4 <= in_row) {
        if (by_engine) continue;
        if (is_aligned) {
          copy_async_16(to + i, from + 4 * i, sizeof(float4));
          continue;
        }
      }
      float* const one = reinterpret_cast<float*>(to + i);
#pragma unroll 1
      for (uint32_t k = 0; k < 4; ++k) {
        if (4 * i + k < in_row) {
          copy_async_4(one + k, from + 4 * i + k);
        } else {
          one[k] = -heddle::sampling::kInfinity;
        }
      }
    }
    commit_copies();
#if __CUDA_ARCH__ >= 900
    show_to_copy_engine();
#endif
  }

  static constexpr uint32_t kWarpIds = 4 * kWarpSize;  // of a chunk

  const LogitRows& rows_;
  const RowLayout& layout_;
  const RingShape& shape_;
  float4* const slots_;
  PhaseBarrier* const copied_;
  const uint32_t step_;
  uint32_t next_row_ = 0, parities_ = 0;  // of the barriers, a bit each
  int rows_left_ = 0, next_chunk_ = 0, write_slot_ = 0, read_slot_ = 0, wait_slot_ = 0;
};

}  // namespace heddle::cuda::sampling
