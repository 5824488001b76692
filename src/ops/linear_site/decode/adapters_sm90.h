#pragma once

#include <cmath>

#include "cuda/memory_cuda.h"

#include "ops/linear_site/decode/adapter_shared_sm90.h"
#include "ops/linear_site/decode/decode_params_cuda.h"
#include "ops/lora/device/expand_product_cuda.h"
#include "ops/lora/device/foreign_plan_cuda.h"
#include "ops/lora/device/shrink_tile_cuda.h"
#include "ops/lora/fused/fused_cuda.h"

namespace heddle::cuda::linear_site {

// LoRA inside a launch of `linear_site`: some warps of each block compute h = A x for all blocks
// together, as lora_apply does, and then B h for the outputs of their block's tiles. Each sum is
// that of lora_apply, operation by operation (ops/lora/device/params.h), so the bits are the same.
//
//   shrink   work items [16 ranks] x [512 features] of all blocks' warps in turn, counted
//   gather   h of all rows and ranks of a slice, into shared memory
//   expand   work items [32 outputs of the tile] x [all ranks], for a row tile's rows
//
// One warp has a whole item: the other warps of its block are at other items.

using lora::kChains;
using lora::kChunkFeatures;
using lora::kNoSum;
using lora::kProductTileRows;
using lora::kTileRanks;
using lora::lane_g;
using lora::lane_q;

constexpr int kUnitOutputs = 32;  // of which a lane has four
constexpr int kLoraThreads = 32 * kLoraWarps;
constexpr int kPrefetchedItems = 2;  // of a warp

template <class T>
class AdapterWarp {
 public:
  /// `index`: of this warp among the kLoraWarps of the block. Waits for the kernel in front.
  __device__ AdapterWarp(const DecodeParams& p, const AdapterShared& s, int index)
      : p_(p), c_(p.adapters), s_(s), index_(index) {
    prefetch_a();
    wait_for_predecessor();
    plan_ = lora::WindowHead(*c_.plan, c_.plan_tag);
    if (index == 0 && lane() == 0) *s_.counters = begin_launch();
    meet();
    counters_ = *s_.counters;
  }

  /// This warp's part of A x, for all blocks.
  __device__ void shrink() const {
    const int num_items = plan_.num_tiles * p_.num_slices * c_.num_chunks;
    for (int i = first_item(); i < num_items; i += item_step()) {
      const int rest = i / c_.num_chunks;
      const int tile = rest / p_.num_slices;
      const int slice = rest - tile * p_.num_slices;
      shrink_item(tile, slice, i - rest * c_.num_chunks);
      __syncwarp();
      if (lane() == 0) add_to_counter(counters_ + slice, 1);
    }
  }

  /// Sums of B h, and their factors, for outputs [first, first + num) of a slice.
  __device__ void expand(int slice, int first, int num) {
    const bool is_other_slice = slice != slice_;
    slice_ = slice;
    if (is_other_slice) look_up();
    if (c_.max_rank <= kTileRanks) {
      expand_items<true>(is_other_slice, first, num);
    } else {
      expand_items<false>(is_other_slice, first, num);
    }
  }

 private:
  [[nodiscard]] static __device__ int lane() { return static_cast<int>(threadIdx.x % 32); }
  [[nodiscard]] __device__ int thread() const { return index_ * 32 + lane(); }
  /// All of the block's warps of this kind.
  static __device__ void meet() { asm volatile("bar.sync 2, %0;" ::"n"(kLoraThreads) : "memory"); }

  /// Counts this block, and returns where this launch counts its items. Launches take turns with
  /// two sets of counters: the last block to come clears those of the next launch.
  [[nodiscard]] __device__ uint32_t* begin_launch() const {
    const uint64_t before = lora::arrive(&c_.exchange->arrivals);
    const uint64_t launch = before / lora::kArrivalBlocks;
    if (before % lora::kArrivalBlocks == gridDim.x - 1) {
      for (uint32_t& counter : c_.exchange->counters[(launch + 1) % 2]) counter = 0;
      lora::count_launch(before, &c_.exchange->arrivals);
    }
    return c_.exchange->counters[launch % 2];
  }

  // Work items of shrink: those of the warps 0 of all blocks first.
  [[nodiscard]] __device__ int first_item() const {
    return index_ * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x);
  }
  [[nodiscard]] static __device__ int item_step() {
    return kLoraWarps * static_cast<int>(gridDim.x);
  }

  /// Brings A of this warp's first items to the L2 cache while the kernel in front still runs. That
  /// may be the one that writes plan and table: what is read here is a guess, and goes no further.
  __device__ void prefetch_a() const {
    const int num_tiles = min(c_.plan->num_tiles, c_.last_tile + 1);
    const int num_items = num_tiles * p_.num_slices * c_.num_chunks;
    for (int n = 0, i = first_item(); n < kPrefetchedItems && i < num_items;
         ++n, i += item_step()) {
      const int rest = i / c_.num_chunks, chunk = i - rest * c_.num_chunks;
      const int tile = rest / p_.num_slices, slice = rest - tile * p_.num_slices;
      const int4 head = *reinterpret_cast<const int4*>(&c_.plan->tiles[tile]);
      const auto slot = static_cast<unsigned>(head.x);
      if (slot >= static_cast<unsigned>(c_.num_slots)) return;
      const LoraWeight a = c_.a[static_cast<int>(slot) * c_.a_stride + slice];
      constexpr int kLine = 128 / sizeof(T), kLines = kChunkFeatures / kLine;
#pragma unroll
      for (int k = 0; k < kTileRanks * kLines / 32; ++k) {
        const int line = lane() + k * 32, rank = (head.y >> 16) * kTileRanks + line / kLines;
        const int feature = chunk * kChunkFeatures + line % kLines * kLine;
        if (a.data == nullptr || rank >= a.rank || feature >= c_.in_features) continue;
        prefetch(static_cast<const T*>(a.data) + rank * a.row_stride + feature);
      }
    }
  }

  struct WeightFeatures {
    uint4 low[2], high[2];  // A of the ranks g and g + 8, features 8 q + [0, 8) of each 32
  };
  struct XFeatures {
    uint4 v[2][2];  // [8 rows][32 features]
  };
  struct ShrinkRows {
    const T* x[2];  // of rows g and g + 8 of the row tile, null where there is none
    const T *low, *high;
  };
  [[nodiscard]] __device__ bool has_feature(int feature) const { return feature < c_.in_features; }
  __device__ void load_weights(const ShrinkRows& rows, int feature, WeightFeatures& to) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int at = feature + 32 * i;
      to.low[i] = rows.low != nullptr && has_feature(at) ? load_once_16(rows.low + at) : uint4{};
      to.high[i] = rows.high != nullptr && has_feature(at) ? load_once_16(rows.high + at) : uint4{};
    }
  }
  __device__ void load_x(const ShrinkRows& rows, int feature, XFeatures& to) const {
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const T* x = rows.x[tile];
        const int at = feature + 32 * i;
        to.v[tile][i] =
            x != nullptr && has_feature(at) ? *reinterpret_cast<const uint4*>(x + at) : uint4{};
      }
    }
  }

  static __device__ void multiply_features(const WeightFeatures& weights, const XFeatures& x,
                                           float (&sum)[2][4]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float of_part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        lora::multiply_block<T>(weights.low[k], weights.high[k], x.v[i][k], of_part);
      }
#pragma unroll
      for (int k = 0; k < 4; ++k) sum[i][k] += of_part[k];
    }
  }

  /// 16 ranks of A times 512 features of the rows of a row tile.
  __device__ void shrink_item(int tile_index, int slice, int chunk) const {
    const lora::RankTile& tile = c_.plan->tiles[min(tile_index, c_.last_tile)];
    const int4 head = *reinterpret_cast<const int4*>(&tile);
    const int slot = head.x, num_rows = head.y & 0xffff;
    const int rank = (head.y >> 16) * kTileRanks + lane_g();
    const LoraWeight a = c_.a[slot * c_.a_stride + slice];
    const int a_rank = a.data != nullptr ? a.rank : 0;
    ShrinkRows rows;
    const T* const data = static_cast<const T*>(a.data);
    rows.low = rank < a_rank ? data + rank * a.row_stride : nullptr;
    rows.high = rank + 8 < a_rank ? data + (rank + 8) * a.row_stride : nullptr;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = lane_g() + i * kProductTileRows;
      rows.x[i] =
          row < num_rows ? static_cast<const T*>(c_.x) + tile.rows[row] * c_.x_stride : nullptr;
    }
    const int feature = chunk * kChunkFeatures + lane_q() * 8;
    float sum[2][4] = {{kNoSum, kNoSum, kNoSum, kNoSum}, {kNoSum, kNoSum, kNoSum, kNoSum}};
    constexpr int kSums = lora::kBlockWarps;  // of 64 features
    WeightFeatures weights[2];
    XFeatures x[2];
    load_weights(rows, feature, weights[0]);
    load_x(rows, feature, x[0]);
#pragma unroll 1
    for (int part = 0; part < kSums; part += 2) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int next = feature + (part + i + 1) * 64;
        if (i == 0 || part + 2 < kSums) {
          load_weights(rows, next, weights[1 - i]);
          load_x(rows, next, x[1 - i]);
        }
        multiply_features(weights[i], x[i], sum);
      }
    }
    float* const to = partials_of(slice, chunk) + head.z * kTileRanks;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int row = i * kProductTileRows + 2 * lane_q() + k % 2;
        if (row < num_rows) to[row * kTileRanks + lane_g() + k / 2 * 8] = sum[i][k];
      }
    }
  }
  /// [row of partial sums][rank of 16]
  [[nodiscard]] __device__ float* partials_of(int slice, int chunk) const {
    return c_.partials + int64_t{slice * c_.num_chunks + chunk} * plan_.num_partials * kTileRanks;
  }

  /// Looks up the adapters of a slice, one thread a row tile.
  __device__ void look_up() const {
    meet();  // nobody reads what the slice before had
    const int slice = slice_;
    const RowFactor none = plan_.is_foreign ? RowFactor{NAN, true} : RowFactor{};
    for (int row = thread(); row < p_.num_rows; row += kLoraThreads) s_.factors[row] = none;
    if (plan_.is_foreign && blockIdx.x == 0 && thread() == 0) {
      report_fault(p_.faults, "linear_site", "plan", 0, plan_.tag);
    }
    meet();
    for (int i = thread(); i < plan_.num_row_tiles; i += kLoraThreads) {
      const lora::RowTile& from = c_.plan->row_tiles[i];
      const int4 head = *reinterpret_cast<const int4*>(&from);
      const LoraWeight a = c_.a[head.x * c_.a_stride + slice];
      const LoraWeight b = c_.b[head.x * c_.b_stride + slice];
      const int num_rows = head.y & 0xffff, num_tiles = head.y >> 16;
      int rank = min(min(a.rank, b.rank), min(num_tiles * kTileRanks, c_.max_rank));
      if (a.data == nullptr || b.data == nullptr) rank = 0;
      RowTileOfSlice& to = s_.row_tiles[i];
      to.b = b.data;
      to.row_stride = static_cast<int32_t>(b.row_stride);
      to.rank = rank;
      to.num_rows = num_rows;
      const int first_partial = from.first_partial;
      for (int r = 0; r < num_rows; ++r) {
        const int row = from.rows[r];
        to.rows[r] = static_cast<uint8_t>(row);
        if (rank > 0) {
          s_.factors[row] = {c_.row_scale != nullptr ? b.scale * c_.row_scale[row] : b.scale, true};
        }
        for (int tile = 0; tile < num_tiles; ++tile) {
          s_.partial_rows[first_partial + tile * num_rows + r] = {row, tile, rank};
        }
      }
    }
    meet();
  }

  /// Waits until the items of the slice are done. False where other blocks took too long.
  [[nodiscard]] __device__ bool wait_for_items() const {
    bool is_done = true;
    if (lane() == 0) {
      const auto num_items = static_cast<uint32_t>(plan_.num_tiles * c_.num_chunks);
      uint32_t spins = 0;
      while (load_counter(counters_ + slice_) < num_items) {
        if (++spins > c_.spin_limit) {
          is_done = false;
          break;
        }
        __nanosleep(64);
      }
    }
    return __shfl_sync(lora::kAllLanes, is_done, 0);
  }
  [[nodiscard]] static __device__ uint32_t load_counter(const uint32_t* counter) {
    uint32_t count;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(count) : "l"(counter) : "memory");
    return count;
  }
  /// Four sums that another block may have written.
  [[nodiscard]] static __device__ float4 load_sums(const float* sums) {
    float4 v;
    asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(sums)
                 : "memory");
    return v;
  }

  /// h of a row and four ranks: the sum of all chunks.
  [[nodiscard]] __device__ float4 sum_chunks(const float* sums) const {
    const int64_t stride = int64_t{plan_.num_partials} * kTileRanks;
    float4 chain[kChains];
#pragma unroll
    for (float4& c : chain) c = {kNoSum, kNoSum, kNoSum, kNoSum};
    for (int chunk = 0; chunk < c_.num_chunks; chunk += kChains, sums += kChains * stride) {
#pragma unroll
      for (int i = 0; i < kChains; ++i) {
        if (chunk + i < c_.num_chunks) add(chain[i], load_sums(sums + i * stride));
      }
    }
#pragma unroll
    for (int step = 1; step < kChains; step *= 2) {
#pragma unroll
      for (int i = 0; i < kChains; i += 2 * step) add(chain[i], chain[i + step]);
    }
    return chain[0];
  }
  static __device__ void add(float4& sum, const float4& v) {
    sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
  }

  /// Puts h of a row and four ranks where lane (g, q) finds it, as hi and lo.
  __device__ void store_h(int row, int of_rank, int rank, const float4& v) const {
    const lora::HPlace place(of_rank, rank);
    const lora::HWords words = lora::split_h<T>(v);
    s_.h[(row * c_.h_steps + place.step) * 4 + place.q] = {words.hi[0], words.hi[1], words.lo[0],
                                                           words.lo[1]};
  }

  /// h of all rows and ranks of the slice.
  __device__ void gather_h() const {
    const float* const sums = partials_of(slice_, 0);
    constexpr int kQuads = kTileRanks / 4;
    for (int i = thread(); i < plan_.num_partials * kQuads; i += kLoraThreads) {
      const PartialRow of = s_.partial_rows[i / kQuads];
      const int first = of.first_rank(), rank = first + i % kQuads * 4;
      if (first >= of.rank()) continue;
      float4 h{};
      if (rank < of.rank()) h = lora::keep_ranks(sum_chunks(sums + i * 4), of.rank() - rank);
      store_h(of.row(), of.rank(), rank, h);
      // Products take 32 ranks at once where there are more than 16.
      const bool is_odd_last = first % 32 == 0 && first + kTileRanks >= of.rank();
      if (of.rank() > kTileRanks && is_odd_last) {
        store_h(of.row(), of.rank(), rank + kTileRanks, float4{});
      }
    }
  }
  /// Computes all partial sums of the slice again, those of other blocks too, which may not even
  /// run while other streams occupy the chip. The bits are the same, so it does not matter whose
  /// sums others read. Each warp does so for all that it reads.
  static __device__ __noinline__ void recompute(AdapterWarp work) {
    for (int tile = 0; tile < work.plan_.num_tiles; ++tile) {
      for (int chunk = 0; chunk < work.c_.num_chunks; ++chunk) {
        work.shrink_item(tile, work.slice_, chunk);
      }
    }
    __threadfence();
    __syncwarp();
  }

  __device__ void multiply_step(const uint2 (&b)[4], const uint4& h, float (&sum)[2][4]) const {
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const uint2 &low = b[2 * pair], &high = b[2 * pair + 1];
      const uint32_t a[4] = {low.x, high.x, low.y, high.y};
      mma_m16n8k16<T>(sum[pair], a, h.x, h.y);
      mma_m16n8k16<T>(sum[pair], a, h.z, h.w);
    }
  }
  // An item of expand: some units of 32 columns of the tile times all ranks, for a row tile. Lane
  // (g, q) has the outputs 4 g + [0, 4) of each unit. Of adapters of up to 16 ranks it has the
  // ranks 4 q + [0, 4), of others 8 q + [0, 8) of each 32. B of the next item is loaded beside.

  static constexpr int kNarrowUnits = 1, kWideUnits = 1;
  template <bool kNarrow>
  struct Item {
    static constexpr int kUnits = kNarrow ? kNarrowUnits : kWideUnits, kSteps = kNarrow ? 1 : 2;
    int index, rank, column;     // of the row tile, of its adapter, this lane's first one
    uint2 b[kUnits][kSteps][4];  // [unit][step of 16 ranks][output]
  };

  /// B of 16 ranks, or of 32 from first_rank on.
  template <bool kNarrow>
  __device__ void load_b(int first, int num, int first_rank, Item<kNarrow>& item) const {
    const RowTileOfSlice& tile = s_.row_tiles[item.index];
    const int stride = tile.row_stride, rank = item.rank, q = lane_q();
    const T* data =
        static_cast<const T*>(tile.b) + (int64_t{first + item.column} * stride + first_rank);
    const bool is_narrow = kNarrow || rank <= kTileRanks;
    const bool has_rank = is_narrow ? 4 * q < rank : first_rank + 8 * q < rank;
    data += is_narrow ? 4 * q : 8 * q;
#pragma unroll
    for (int u = 0; u < Item<kNarrow>::kUnits; ++u) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int output = u * kUnitOutputs + i;
        const bool loads = has_rank && item.column + output < num;
        if (is_narrow) {
          item.b[u][0][i] = loads ? load_once_8(data + output * stride) : uint2{0, 0};
        } else {
          const uint4 v = loads ? load_once_16(data + output * stride) : uint4{0, 0, 0, 0};
          item.b[u][0][i] = {v.x, v.y};
          item.b[u][Item<kNarrow>::kSteps - 1][i] = {v.z, v.w};
        }
      }
    }
  }
  template <bool kNarrow>
  __device__ void begin_item(int at, int groups, int first, int num, Item<kNarrow>& item) const {
    item.rank = 0;
    item.index = at / groups;
    if (item.index >= plan_.num_row_tiles) return;
    item.rank = s_.row_tiles[item.index].rank;
    item.column = (at - item.index * groups) * Item<kNarrow>::kUnits * kUnitOutputs + 4 * lane_g();
    load_b(first, num, 0, item);
  }

  /// Adds the products of 8 rows and the ranks that the item holds.
  template <bool kNarrow>
  __device__ void multiply_item(const Item<kNarrow>& item, int row, int first_rank,
                                float (&sum)[Item<kNarrow>::kUnits][2][4]) const {
#pragma unroll
    for (int step = 0; step < Item<kNarrow>::kSteps; ++step) {
      if (step == 1 && item.rank <= kTileRanks) break;
      const uint4 h = row >= 0 ? s_.h[(row * c_.h_steps + first_rank / 16 + step) * 4 + lane_q()]
                               : uint4{0, 0, 0, 0};
#pragma unroll
      for (int u = 0; u < Item<kNarrow>::kUnits; ++u) multiply_step(item.b[u][step], h, sum[u]);
    }
  }
  template <bool kNarrow>
  __device__ void finish_item(Item<kNarrow>& item, int first, int num) const {
    if (item.rank == 0) return;
    const RowTileOfSlice& tile = s_.row_tiles[item.index];
    const int num_rows = tile.num_rows;
    for (int t = 0; t * kProductTileRows < num_rows; ++t) {
      float sum[Item<kNarrow>::kUnits][2][4] = {};
      const int at = t * kProductTileRows + lane_g();
      const int row = at < num_rows ? tile.rows[at] : -1;
      if (kNarrow) {
        multiply_item<kNarrow>(item, row, 0, sum);
      } else {
        for (int rank = 0; rank < item.rank; rank += 32) {
          if (rank > 0 || (t > 0 && item.rank > 32)) load_b<kNarrow>(first, num, rank, item);
          multiply_item<kNarrow>(item, row, rank, sum);
        }
      }
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int of_tile = t * kProductTileRows + 2 * lane_q() + j;
        if (of_tile >= num_rows) continue;
        float* const to = s_.delta + tile.rows[of_tile] * s_.delta_stride + item.column;
#pragma unroll
        for (int u = 0; u < Item<kNarrow>::kUnits; ++u) {
          if (item.column + u * kUnitOutputs >= num) break;
          *reinterpret_cast<float4*>(to + u * kUnitOutputs) = {sum[u][0][j], sum[u][0][2 + j],
                                                               sum[u][1][j], sum[u][1][2 + j]};
        }
      }
    }
  }
  template <bool kNarrow>
  __device__ void expand_items(bool gathers, int first, int num) const {
    const int groups = ceil_div(num, Item<kNarrow>::kUnits * kUnitOutputs);
    const int items = plan_.num_row_tiles * groups;
    Item<kNarrow> now, next;
    // No call stands between the loads of B and their use, or they would be waited for here.
    if (gathers && !wait_for_items()) recompute(*this);
    begin_item(index_, groups, first, num, now);
    if (gathers) {
      gather_h();
      meet();
    }
    for (int i = index_; i < items; i += kLoraWarps) {
      begin_item(i + kLoraWarps, groups, first, num, next);
      finish_item(now, first, num);
      now = next;
    }
  }

  const DecodeParams& p_;
  const DecodeAdapters& c_;
  AdapterShared s_;
  int index_, slice_ = -1;
  uint32_t* counters_ = nullptr;  // [slice]: items of shrink that are done
  lora::WindowHead plan_;
};

}  // namespace heddle::cuda::linear_site
