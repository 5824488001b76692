#pragma once

#include "cuda/begin_early_cuda.h"
#include "cuda/cluster_cuda.h"
#include "cuda/sm90/wgmma_registers_cuda.h"

#include "core/math.h"
#include "ops/linear_site/decode/x_signal_cuda.h"
#include "ops/linear_site/packed/codes_cuda.h"
#include "ops/linear_site/packed/packed_division.h"
#include "ops/linear_site/packed/packed_store_cuda.h"

namespace heddle::cuda::linear_site {

// y = x W^T + bias for packed weights on compute capability 9.0. A warpgroup has a tile of 64
// outputs, a warp a group of 16 of them, and part of the features; a block has up to four
// warpgroups, for some tiles and some parts of each; blocks of a cluster have all parts.
//
//   features   | stage | stage | ...    128 or 256 each, parts take turns; a warp copies its own W,
//                                       the block x of all its parts
//   a stage    | 32 | 32 | ...          two products of 16 features of all rows, x from shared
//                                       memory; their f32 sums are multiplied by d and added to
//                                       the sum of the output
//
// Codes are exact as operands, so weights are not rounded. A minimum is multiplied by the sum of
// the 32 features of x, both as bf16 that are all of them. The sums of parts are added in pairs of
// neighbours, then pairs of those, so the order of a sum depends on the number of parts alone, and
// that on the shapes of the launch's weights.

/// One launch.
struct PackedLaunch : PackedParams {
  PackedDivision d;
  int32_t num_groups;  // end_tile of a slice counts groups
};

/// What a block does for kRows rows.
template <WeightType kType, class T, int kRows>
class PackedTiles {
 public:
  using Fragment = WeightFragment<kType, T>;
  static constexpr StageShape kStage{kType};
  static constexpr BlockFormat kFormat = block_format(kType);
  static constexpr int kBlockBytes = PackedLayout(kType).block_bytes;
  static constexpr int kRowTiles = kRows / 8, kSteps = kStage.features / kPartStepFeatures;
  static constexpr int kXBlockBytes = kRows * kSwizzledRowBytes;  // 64 features of all rows
  using Sums = float[kRowTiles * 4];

  __device__ PackedTiles(const PackedLaunch& p, std::byte* shared)
      : p_(p),
        d_(p.d),
        shared_(shared),
        warp_(__shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 32), 0)),
        lane_(static_cast<int>(threadIdx.x % 32)),
        rank_(static_cast<int>(blockIdx.x) & (p.d.cluster_size - 1)) {
    const int block = static_cast<int>(blockIdx.x) / d_.cluster_size;
    first_row_ = block % d_.row_blocks * kRows;
    num_rows_ = min(kRows, p.num_rows - first_row_);
    first_group_ = block / d_.row_blocks * d_.block_tiles * kTileGroups;
    part_ = warp_ / kTileGroups & (d_.block_parts - 1);
    group_ = (warp_ / kTileGroups >> d_.part_bits) * kTileGroups + warp_ % kTileGroups;
    first_stage_ = rank_ * d_.block_parts + part_;
    const int stages = (p.in_features + kStage.features - 1) / kStage.features;
    num_stages_ = (stages - first_stage_ + d_.parts - 1) / d_.parts;
    open_weights();
  }

  __device__ void run() {
    begin_barriers();
    for (int s = 0; s < d_.ring; ++s) copy_weights(s, s);
    wait_for_rows();
    copy_x(0, 0);
    Sums sum = {};
    int slot = 0, parity = 0, s = 0;
#pragma unroll 1
    for (int phase = 0; phase < d_.num_phases; ++phase) {
      const int x_slot = phase & (d_.x_slots - 1);
      wait_for_copies<0>();
      prepare_x(phase, x_slot);
      show_to_copy_engine();
      __syncthreads();
      if (d_.x_slots > 1) copy_x(phase + 1, x_slot ^ 1);
      const int end = min(s + d_.phase_stages, num_stages_);
#pragma unroll 1
      for (int i = 0; s < end; ++s, ++i) {
        barriers()[slot].wait(parity);
        multiply_stage(s, slot, x_slot, i * d_.block_parts + part_, sum);
        __syncwarp();
        copy_weights(s + d_.ring, slot);
        if (++slot == d_.ring) slot = 0, parity ^= 1;
      }
      if (d_.x_slots == 1 && phase + 1 < d_.num_phases) {
        __syncthreads();
        copy_x(phase + 1, 0);
      }
    }
    __syncthreads();
    store_sums(sum);
    if (p_.signal != nullptr) wait_for_predecessor();  // A x has ended when this kernel has
    finish();
  }

 private:
  [[nodiscard]] __device__ PhaseBarrier* barriers() const {
    return reinterpret_cast<PhaseBarrier*>(shared_ + d_.barriers_at) + warp_ * d_.ring;
  }
  /// Of this warp alone, one for each stage of its ring.
  __device__ void begin_barriers() const {
    if (is_elected()) {
      for (int s = 0; s < d_.ring; ++s) barriers()[s].init(1);
      show_to_copy_engine();
    }
    __syncwarp();
  }
  __device__ void wait_for_rows() const {
    if (p_.signal == nullptr) return wait_for_predecessor();
    if (threadIdx.x == 0) wait_for_x(*p_.signal);
    __syncthreads();
  }

  /// Of stage s of a part of the block.
  [[nodiscard]] __device__ int first_feature(int s, int part) const {
    return (s * d_.parts + rank_ * d_.block_parts + part) * kStage.features;
  }
  [[nodiscard]] __device__ int features_of(int s, int part) const {
    return min(kStage.features, p_.in_features - first_feature(s, part));
  }
  [[nodiscard]] __device__ std::byte* weights_of(int slot) const {
    return shared_ + (warp_ * d_.ring + slot) * kStage.weight_bytes;
  }
  /// x of a stage, `place` in its phase: blocks of 64 features of all rows.
  [[nodiscard]] __device__ std::byte* x_of(int slot, int place) const {
    return shared_ + d_.x_at + slot * d_.x_slot_bytes + place * (kRows * kStage.x_row_bytes);
  }
  /// 16 bytes of a row of a stage.
  [[nodiscard]] static __device__ std::byte* vector_of(std::byte* x, int row, int vector) {
    return x + vector / 8 * kXBlockBytes + row * kSwizzledRowBytes + ((vector ^ row) & 7) * 16;
  }
  /// The sum of a row over the features of a step, as three bf16, the last one twice.
  [[nodiscard]] __device__ uint2* x_sum_of(int slot, int place, int row, int step) const {
    return reinterpret_cast<uint2*>(shared_ + d_.x_sums_at + slot * d_.x_sum_slot_bytes +
                                    place * (kRows * kStage.x_sum_bytes)) +
           (step / 4 * kRows + row) * 4 + step % 4;
  }

  /// Groups past the last one repeat it; nothing stores their outputs.
  __device__ void open_weights() {
    const int group = min(first_group_ + group_, p_.num_groups - 1);
    const PackedTile at(p_, group, 1);
    const int64_t step = int64_t{p_.in_features / kFormat.block_size} * kBlockBytes;
    weight_ = p_.slices[at.slice].weight + at.first_output * step +
              int64_t{first_stage_} * kStage.weight_bytes;
  }
  /// Of one stage after the other.
  __device__ void copy_weights(int s, int slot) {
    if (s >= num_stages_) return;
    if (is_elected()) {
      uint32_t bytes = kStage.weight_bytes;
      if (s == num_stages_ - 1) {
        bytes = static_cast<uint32_t>(features_of(s, part_) / kFormat.block_size * kBlockBytes);
      }
      PhaseBarrier& barrier = barriers()[slot];
      barrier.arrive_and_expect(bytes);
      bulk_load(weights_of(slot), weight_, bytes, barrier);
    }
    weight_ += d_.parts * kStage.weight_bytes;
  }

  /// Calls f(place, row, vector, feature, exists) for what this thread copies of x: 8 features of
  /// each. A row of a stage takes 16 or 32 lanes.
  template <class F>
  __device__ void for_own_x(int phase, F&& f) const {
    constexpr int kLanes = kStage.features / 8, kRowsOfWarp = 32 / kLanes;
    const int rows = max(1 << d_.row_bits, kRowsOfWarp);
    const int all = rows * d_.phase_stages * d_.block_parts;
#pragma unroll 1
    for (int i = warp_ * kRowsOfWarp + lane_ / kLanes; i < all; i += d_.warps() * kRowsOfWarp) {
      const int place = i >> max(d_.row_bits, kRowsOfWarp - 1), row = i & (rows - 1);
      const int stage = phase * d_.phase_stages + (place >> d_.part_bits);
      const int feature = first_feature(stage, place & (d_.block_parts - 1)) + lane_ % kLanes * 8;
      f(place, row, lane_ % kLanes, feature, feature < p_.in_features && row < num_rows_);
    }
  }
  __device__ void copy_x(int phase, int slot) const {
    if (phase < d_.num_phases) {
      for_own_x(phase, [&](int place, int row, int vector, int feature, bool exists) {
        if (!exists) return;
        copy_async_16(vector_of(x_of(slot, place), row, vector),
                      static_cast<const T*>(p_.x) + (first_row_ + row) * p_.x_stride + feature, 16);
      });
    }
    commit_copies();
  }

  /// Puts what this warp has copied in the order of the codes; sums x where weights have minima.
  __device__ void prepare_x(int phase, int slot) const {
    if constexpr (kFormat.code_bits == 8) return;
    for_own_x(phase, [&](int place, int row, int vector, int, bool exists) {
      std::byte* const x = x_of(slot, place);
      uint4 v{0, 0, 0, 0};
      if (exists) v = *reinterpret_cast<const uint4*>(vector_of(x, row, vector));
      __syncwarp();
      if (exists) put_in_order(x, row, vector, v);
      if constexpr (kFormat.has_min) {
        float sum = sum_of_8<T>(v);
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        // Zeros after the last feature: minima of steps that a stage lacks are multiplied, too.
        if (vector % 4 == 0) *x_sum_of(slot, place, row, vector / 4) = split_in_three(sum);
      }
    });
  }
  /// The features 8 vector + [0, 8): those of a product are 32 bytes. Pairs of features p, p + 4 go
  /// where lane q of the weights has them, as q and as q + 4 of its eight pairs.
  static __device__ void put_in_order(std::byte* x, int row, int vector, const uint4& v) {
    constexpr bool kIs6 = kFormat.code_bits == 6;
    const uint32_t pairs[4] = {__byte_perm(v.x, v.z, 0x5410), __byte_perm(v.x, v.z, 0x7632),
                               __byte_perm(v.y, v.w, 0x5410), __byte_perm(v.y, v.w, 0x7632)};
    const uint32_t first = shared_address(vector_of(x, row, kIs6 ? vector & ~1 : vector & ~3)) +
                           (kIs6 ? vector % 2 * 8 : vector % 4 * 4);
#pragma unroll
    for (uint32_t p = 0; p < 4; ++p) {
      // Vector `first` + i lies at 16 i of 128 bytes, in an order that exclusive or makes.
      store_shared((first ^ (kIs6 ? p % 2 : p) * 16) + (kIs6 ? p / 2 * 4 : 0), pairs[p]);
    }
  }
  static __device__ void store_shared(uint32_t to, uint32_t v) {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(v) : "memory");
  }

  /// Each step is unpacked while the previous one is multiplied.
  __device__ void multiply_stage(int s, int slot, int x_slot, int place, Sums& sum) const {
    const int g = lane_ / 4, q = lane_ % 4,
              steps = s < num_stages_ - 1 ? kSteps : features_of(s, part_) / kPartStepFeatures;
    const std::byte* const stage = weights_of(slot);
    const std::byte* const codes = Fragment::codes_of(stage, g, q);
    const std::byte* const scales = Fragment::scales_of(stage, g);
    float2 d{};
    if constexpr (Fragment::kSteps > 1) d = Fragment::d_of(stage, g);
    const auto fetch = [&](int step) {
      return Fragment::fetch(codes + step * Fragment::kCodeBytes,
                             scales + step * Fragment::kScaleBytes, q);
    };
    if constexpr (kFormat.has_min) add_minima(steps, stage, x_sum_of(x_slot, place, 0, 0), sum);
    const uint64_t x = matrix_descriptor(x_of(x_slot, place));
    if (steps == kSteps) {
      multiply_steps<true>(fetch, kSteps, d, x, sum);
    } else {
      multiply_steps<false>(fetch, steps, d, x, sum);
    }
  }
  template <bool kIsFull, class Fetch>
  __device__ void multiply_steps(const Fetch& fetch, int steps, const float2& d, uint64_t x,
                                 Sums& sum) const {
    const int q = lane_ % 4;
    Fragment even, odd;
    even.unpack(fetch(0), d, q);
    Sums part;
#pragma unroll(kIsFull ? kSteps / 2 : 1)
    for (int step = 0; step < (kIsFull ? kSteps : steps); step += 2) {
      auto words = fetch(min(step + 1, steps - 1));
      begin_step(even, x, part);
      odd.unpack(words, d, q);
      if (!kIsFull || step + 2 < kSteps) words = fetch(min(step + 2, steps - 1));
      end_step(even, x, part, sum);
      if (!kIsFull && step + 1 == steps) break;
      begin_step(odd, further(x, 64), part);
      if (!kIsFull || step + 2 < kSteps) even.unpack(words, d, q);
      end_step(odd, further(x, 64), part, sum);
      x = further(x, kXBlockBytes);
    }
  }
  static __device__ void begin_step(const Fragment& w, uint64_t x, Sums& part) {
    hold(part);
    begin_products();
    wgmma_registers<T, false>(part, w.a[0], x);
    if constexpr (Fragment::kScales == 1) wgmma_registers<T, true>(part, w.a[1], further(x, 32));
    commit_products();
  }
  static __device__ void end_step(const Fragment& w, uint64_t x, Sums& part, Sums& sum) {
    wait_for_products<0>();
    hold(part);
    add_scaled(w.scale[0], part, sum);
    if constexpr (Fragment::kScales == 2) {
      hold(part);
      begin_products();
      wgmma_registers<T, false>(part, w.a[1], further(x, 32));
      commit_products();
      wait_for_products<0>();
      hold(part);
      add_scaled(w.scale[1], part, sum);
    }
  }
  static __device__ void add_scaled(const float (&scale)[2], const Sums& part, Sums& sum) {
#pragma unroll
    for (int i = 0; i < kRowTiles * 4; ++i) {
      sum[i] = __fmaf_rn(scale[i / 2 % 2], part[i], sum[i]);
    }
  }

  /// The minima of a stage times the sums of x: of a lane's two outputs those of the steps q and
  /// q + 4, as two bf16 that are all of it, times the three of a sum.
  __device__ void add_minima(int steps, const std::byte* stage, const uint2* x_sums,
                             Sums& sum) const {
    uint32_t minima[4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int step = half * 4 + lane_ % 4;
      float2 v{0, 0};
      if (step < steps) v = Fragment::minima(stage, step, lane_ / 4);
      minima[2 * half] = split_in_two(v.x);
      minima[2 * half + 1] = split_in_two(v.y);
    }
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t) {
      const uint2* const at = x_sums + t * 32 + lane_;
      const uint2 low = at[0], high = at[kRows * 4];
      const uint32_t x[3][2] = {{__byte_perm(low.x, 0, 0x1010), __byte_perm(high.x, 0, 0x1010)},
                                {__byte_perm(low.x, 0, 0x3232), __byte_perm(high.x, 0, 0x3232)},
                                {low.y, high.y}};
      float v[4] = {sum[4 * t], sum[4 * t + 1], sum[4 * t + 2], sum[4 * t + 3]};
#pragma unroll
      for (const auto& part : x) mma_m16n8k16<__nv_bfloat16>(v, minima, part[0], part[1]);
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[4 * t + i] = v[i];
    }
  }

  __device__ void store_sums(const Sums& sum) const {
    const int stride = d_.sum_stride;
    float* const first = reinterpret_cast<float*>(shared_) +
                         (part_ * kRows + 2 * (lane_ % 4)) * stride +
                         group_ * PackedLayout::kGroup + 2 * (lane_ / 4);
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t) {
      float* const to = first + t * 8 * stride;
      *reinterpret_cast<float2*>(to) = {sum[4 * t], sum[4 * t + 2]};
      *reinterpret_cast<float2*>(to + stride) = {sum[4 * t + 1], sum[4 * t + 3]};
    }
  }

  /// y of this block's share of its columns, four at a time.
  __device__ void finish() const {
    const int stride = d_.sum_stride / 4;
    auto* const sums = reinterpret_cast<float4*>(shared_);
    const bool has_cluster = d_.cluster_size > 1;
    const int groups = min(d_.block_tiles * kTileGroups, p_.num_groups - first_group_);
    const int all = groups * (PackedLayout::kGroup / 4), threads = d_.warps() * 32;
    __syncthreads();
    if (has_cluster) {
      if (d_.block_parts > 1) {
        for (int i = static_cast<int>(threadIdx.x); i < num_rows_ * all; i += threads) {
          const int row = i / all;
          float4* const own = sums + row * stride + (i - row * all);
          *own = sum_of_parts(own);
        }
      }
      arrive_at_cluster();
      wait_for_cluster();
    }
    const int first = all * rank_ / d_.cluster_size;
    const int quads = all * (rank_ + 1) / d_.cluster_size - first;
    for (int i = static_cast<int>(threadIdx.x); i < num_rows_ * quads; i += threads) {
      const int row = i / quads, quad = first + i - row * quads;
      const PackedTile at(p_, first_group_ + quad / 4, 1);
      const int output = at.first_output * PackedLayout::kGroup + quad % 4 * 4;
      // Nothing is requested that is not stored: what is stored has come before the block leaves.
      if (output >= p_.slices[at.slice].width) continue;
      const float4* const own = sums + row * stride + quad;
      store_packed<T>(p_, at.slice, first_row_ + row, output,
                      has_cluster ? sum_of_cluster(own) : sum_of_parts(own));
    }
    if (has_cluster) {  // the others still read this block's sums
      leave_cluster();
      wait_for_cluster();
    }
  }

  /// The sum of kNum numbers from `first` on, in pairs of neighbours, then pairs of those.
  template <int kNum, class Load>
  [[nodiscard]] static __device__ float4 sum_in_pairs(const Load& load, int first = 0) {
    if constexpr (kNum == 1) {
      return load(first);
    } else {
      const float4 a = sum_in_pairs<kNum / 2>(load, first);
      const float4 b = sum_in_pairs<kNum / 2>(load, first + kNum / 2);
      return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
    }
  }
  [[nodiscard]] __device__ float4 sum_of_parts(const float4* own) const {
    const auto load = [&](int part) { return own[part * kRows * (d_.sum_stride / 4)]; };
    switch (d_.block_parts) {
      case 1: return load(0);
      case 2: return sum_in_pairs<2>(load);
      default: return sum_in_pairs<4>(load);
    }
  }
  [[nodiscard]] static __device__ float4 sum_of_cluster(const float4* own) {
    return sum_in_pairs<2>([&](int i) { return load_of_block(own, static_cast<uint32_t>(i)); });
  }

  const PackedLaunch& p_;
  const PackedDivision& d_;
  std::byte* shared_;
  int warp_, lane_, rank_, part_, group_;
  int first_row_, num_rows_, first_group_;
  int first_stage_, num_stages_;
  const std::byte* weight_;  // what this warp copies next
};

template <WeightType kType, class T>
__global__ void __launch_bounds__(kMaxWarpgroups * 128, 1)
    packed_tiles_kernel(const __grid_constant__ PackedLaunch p) {
  extern __shared__ __align__(1024) std::byte shared[];
  if (p.signal == nullptr) trigger_dependents();  // else the thread that waits for x does
  fetch_parameters(p);
  switch (p.d.block_rows) {
    case 8: return PackedTiles<kType, T, 8>(p, shared).run();
    case 16: return PackedTiles<kType, T, 16>(p, shared).run();
    case 32: return PackedTiles<kType, T, 32>(p, shared).run();
    default: return PackedTiles<kType, T, kMaxPartRows>(p, shared).run();
  }
}

}  // namespace heddle::cuda::linear_site
