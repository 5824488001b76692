#pragma once

#include "cuda/memory_cuda.h"

#include "ops/linear_site/decode/decode_params_cuda.h"
#include "ops/linear_site/decode/x_signal_cuda.h"
#include "ops/lora_device/foreign_plan_cuda.h"
#include "ops/lora_device/shrink_tile_cuda.h"

namespace heddle::cuda::linear_site {

// A x of all adapters of a batch, in a launch of its own before that of the products, next to
// which its blocks find room. A work item is 16 ranks of A times a chain of chunks of 512 features,
// for the rows of a row tile, and an entry one of its chunks. A block has an entry at a time, each
// warp 64 of its features, summed as lora_apply does (ops/lora_device/shrink_tile_cuda.h).

/// A chunk of a work item as its block needs it.
struct alignas(16) ShrinkEntry {
  const void* a;  // of the first rank
  int32_t row_stride;
  int16_t num_ranks, num_rows;
  int32_t first_partial;
  int16_t slice, chunk;  // chunk: may be after the last one
  int32_t slot, padding;
  int16_t rows[lora::kRowTileRows];
};
static_assert(sizeof(ShrinkEntry) == 64);

constexpr int kShrinkEntries = 32;  // that are looked up at the same time, a lane each

struct ShrinkShared {
  lora::WarpSums sums;
  ShrinkEntry entries[kShrinkEntries];
  uint32_t num_begun;
};

/// Whether this thread signals to the products that x is ready: of a warp that looks up nothing.
[[nodiscard]] __device__ inline bool tells_of_x(const ShrinkParams& p) {
  return p.signal != nullptr && blockIdx.x == 0 && threadIdx.x == lora::kBlockThreads - 1;
}

template <class T>
class Shrink {
 public:
  __device__ Shrink(const ShrinkParams& p, ShrinkShared& s) : p_(p), s_(s) {}

  /// Plan and tables are read before the previous kernel has ended, which may write them. What is
  /// read then is a guess: of which A is brought to the L2 cache, and no more.
  __device__ void run() {
    plan_ = lora::WindowHead(*p_.plan, p_.plan_tag);
    int slot = -1;
    if (warp() == 0) slot = look_up(0, slot);
    __syncthreads();
    prefetch_a();
    wait_for_predecessor();
    if (tells_of_x(p_)) tell_ready(*p_.signal);
    plan_ = lora::WindowHead(*p_.plan, p_.plan_tag);
    const int num_entries = num_items() * item_chunks();
    for (int base = 0; base < num_entries; base += kShrinkEntries) {
      __syncthreads();
      if (warp() == 0) look_up(base, base == 0 ? slot : -1);
      __syncthreads();
      run_entries(min(num_entries - base, kShrinkEntries));
    }
  }

 private:
  struct Features {
    uint4 low[2], high[2];  // A of the ranks g and g + 8, features 8 q + [0, 8) of each 32
    uint4 x[2];             // of row g
  };

  [[nodiscard]] static __device__ int lane() { return static_cast<int>(threadIdx.x % 32); }
  [[nodiscard]] static __device__ int warp() { return static_cast<int>(threadIdx.x / 32); }
  [[nodiscard]] static __device__ int g() { return lane() / 4; }
  [[nodiscard]] __device__ int item_chunks() const {
    return ceil_div(p_.num_chunks, lora::kChains);
  }
  /// Of this block: every so many of [rank tile][slice][chain].
  [[nodiscard]] __device__ int num_items() const {
    const int all = min(plan_.num_tiles, p_.last_tile + 1) * p_.num_slices * p_.num_chains;
    return ceil_div(max(all - static_cast<int>(blockIdx.x), 0), static_cast<int>(gridDim.x));
  }

  /// One warp puts the entries from `base` on into shared memory, a lane each. `early_slot`: that
  /// this lane's probably has, whose entry of the table is requested together with the plan.
  /// Returns the slot.
  __device__ int look_up(int base, int early_slot) const {
    const int n = base + lane(), of_item = n / item_chunks();
    const int i = static_cast<int>(blockIdx.x) + of_item * static_cast<int>(gridDim.x);
    const int rest = i / p_.num_chains, tile = rest / p_.num_slices;
    const int slice = rest - tile * p_.num_slices;
    // All that memory says, before anything waits for the head of the plan.
    const lora::RankTile& from = p_.plan->tiles[min(tile, p_.last_tile)];
    const int4 head = *reinterpret_cast<const int4*>(&from);
    const int4 rows[2] = {reinterpret_cast<const int4*>(from.rows)[0],
                          reinterpret_cast<const int4*>(from.rows)[1]};
    LoraWeight a{};
    if (is_slot(early_slot)) a = weight(early_slot, slice);
    ShrinkEntry to{};
    if (of_item < num_items()) {
      if (head.x != early_slot && is_slot(head.x)) a = weight(head.x, slice);
      const int first = (head.y >> 16) * lora::kTileRanks;
      const int num_ranks = a.data == nullptr ? 0 : a.rank - first;
      to.a = static_cast<const T*>(a.data) + first * a.row_stride;
      to.row_stride = static_cast<int32_t>(a.row_stride);
      to.num_ranks = static_cast<int16_t>(min(max(num_ranks, 0), lora::kTileRanks));
      to.num_rows = static_cast<int16_t>(head.y & 0xffff);
      to.first_partial = head.z;
      to.slice = static_cast<int16_t>(slice);
      to.chunk = static_cast<int16_t>(i - rest * p_.num_chains +
                                      (n - of_item * item_chunks()) * lora::kChains);
      to.slot = head.x;
      reinterpret_cast<int4*>(to.rows)[0] = rows[0];
      reinterpret_cast<int4*>(to.rows)[1] = rows[1];
    }
    s_.entries[lane()] = to;
    return to.slot;
  }
  [[nodiscard]] __device__ bool is_slot(int slot) const {
    return static_cast<unsigned>(slot) < static_cast<unsigned>(p_.num_slots);
  }
  [[nodiscard]] __device__ LoraWeight weight(int slot, int slice) const {
    return p_.a[slot * p_.a_stride + slice];
  }

  /// Brings A of the first entries to the L2 cache, a line a lane.
  __device__ void prefetch_a() const {
    const int rank = lane() % lora::kTileRanks;
#pragma unroll 1
    for (int n = lane() / lora::kTileRanks; n < kShrinkEntries; n += 2) {
      const ShrinkEntry& entry = s_.entries[n];
      const int feature = entry.chunk * lora::kChunkFeatures + warp() * 64;
      if (rank >= entry.num_ranks || feature >= p_.in_features) continue;
      prefetch(static_cast<const T*>(entry.a) + rank * int64_t{entry.row_stride} + feature);
    }
  }

  __device__ void run_entries(int num) {
    Features features;
    load_a(s_.entries[0], features);
    load_x(s_.entries[0], 0, features);
#pragma unroll 1
    for (int n = 0; n < num; ++n) {
      const ShrinkEntry& entry = s_.entries[n];
#pragma unroll 1
      for (int tile = 0;;) {
        float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          lora::multiply_block<T>(features.low[i], features.high[i], features.x[i], sum);
        }
        lora::store_sums(s_.sums, tile, sum);
        if (++tile * lora::kProductTileRows >= entry.num_rows) break;
        load_x(entry, tile, features);
      }
      if (n + 1 < num) {
        load_a(s_.entries[n + 1], features);
        load_x(s_.entries[n + 1], 0, features);
      }
      __syncthreads();
      add_chunk(entry);
      __syncthreads();
    }
  }
  __device__ void load_a(const ShrinkEntry& entry, Features& to) const {
    const int feature = first_feature(entry);
    const T* const low = static_cast<const T*>(entry.a) + g() * int64_t{entry.row_stride} + feature;
    const T* const high = low + 8 * int64_t{entry.row_stride};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const bool in_range = feature + 32 * i < p_.in_features;
      to.low[i] = in_range && g() < entry.num_ranks ? load_once_16(low + 32 * i) : uint4{};
      to.high[i] = in_range && g() + 8 < entry.num_ranks ? load_once_16(high + 32 * i) : uint4{};
    }
  }
  __device__ void load_x(const ShrinkEntry& entry, int tile, Features& to) const {
    const int feature = first_feature(entry), row = tile * lora::kProductTileRows + g();
    const bool in_range = row < entry.num_rows;
    const T* const x =
        static_cast<const T*>(p_.x) + (in_range ? entry.rows[row] : 0) * p_.x_stride + feature;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      to.x[i] = in_range && feature + 32 * i < p_.in_features
                    ? *reinterpret_cast<const uint4*>(x + 32 * i)
                    : uint4{};
    }
  }
  /// This lane's first one.
  [[nodiscard]] __device__ int first_feature(const ShrinkEntry& entry) const {
    return entry.chunk * lora::kChunkFeatures + warp() * 64 + lane() % 4 * 8;
  }
  /// Adds the sums of a chunk to those of its chain, which go to memory after the last one.
  __device__ void add_chunk(const ShrinkEntry& entry) {
    const int at = static_cast<int>(threadIdx.x);
    if (at / lora::kTileRanks >= entry.num_rows || entry.chunk >= p_.num_chunks) return;
    if (entry.chunk < lora::kChains) chain_ = lora::kNoSum;
    chain_ += lora::sum_of_warps(s_.sums);
    if (entry.chunk + lora::kChains < p_.num_chunks) return;
    const int64_t row =
        int64_t{entry.slice * p_.num_chains + entry.chunk % lora::kChains} * plan_.num_partials +
        entry.first_partial;
    p_.partials[row * lora::kTileRanks + at] = chain_;
  }

  const ShrinkParams& p_;
  ShrinkShared& s_;
  lora::WindowHead plan_;
  float chain_ = 0.0f;  // thread t: rank t % 16 of row t / 16
};

template <class T>
__global__ void __launch_bounds__(lora::kBlockThreads, 4)
    shrink_kernel(const __grid_constant__ ShrinkParams p) {
  __shared__ ShrinkShared shared;
  if (tells_of_x(p)) shared.num_begun = begin_launch(*p.signal);  // kept in shared memory
  __syncthreads();
  trigger_dependents();
  Shrink<T>(p, shared).run();
}

}  // namespace heddle::cuda::linear_site
