#pragma once

#include "cuda/begin_early_cuda.h"
#include "cuda/cluster_cuda.h"
#include "cuda/early_launch.h"
#include "cuda/shared_memory.h"

#include "core/math.h"
#include "ops/linear_site/decode/x_signal_cuda.h"
#include "ops/linear_site/packed/codes_cuda.h"
#include "ops/linear_site/packed/packed_params.h"
#include "ops/linear_site/packed/packed_shape.h"
#include "ops/linear_site/packed/packed_store_cuda.h"

namespace heddle::cuda::linear_site {

// y = x W^T + bias for packed weights. A block has a tile of outputs, a warp one or two groups of
// 16 of them, and up to 32 rows. Blocks of a cluster share the features.
//
//   features   | stage | stage | ...    256 each; of W a warp copies its own groups, of x its rows
//   a stage    | 32 | 32 | ...          two products of 16 features, whose f32 sums are multiplied
//                                       by d and added to the sum of the output
//
// Codes are exact as operands, so weights are not rounded. A minimum is multiplied by the sum of
// the 32 features of x, both as bf16 that are all of them. The order of a sum depends on the shapes
// of the launch's weights alone.

/// What a block does for up to kRowTiles tiles of 8 rows.
template <WeightType kType, class T, int kRowTiles>
class PackedBlock {
 public:
  using Fragment = WeightFragment<kType, T>;
  static constexpr PackedShape kShape{kType};
  static constexpr BlockFormat kFormat = block_format(kType);
  static constexpr int kBlockBytes = PackedLayout(kType).block_bytes;
  static constexpr int kGroups = kShape.warp_groups, kRows = kRowTiles * kPackedRowTile;
  static constexpr int kStepBytes = kPackedStepFeatures * 2;  // of x
  using Sums = float[kRowTiles][kGroups][4];

  __device__ PackedBlock(const PackedParams& p, std::byte* shared)
      : p_(p),
        shared_(shared),
        warp_(__shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 32), 0)),
        lane_(static_cast<int>(threadIdx.x % 32)),
        rank_(static_cast<int>(blockIdx.x) % p.cluster_size),
        tile_(p, static_cast<int>(blockIdx.x) / p.cluster_size, kShape.tile_outputs) {
    const int stages = (p.in_features + kPackedStageFeatures - 1) / kPackedStageFeatures;
    first_stage_ = stages * rank_ / p.cluster_size;
    num_stages_ = stages * (rank_ + 1) / p.cluster_size - first_stage_;
    open_weights();
    x_ = static_cast<const T*>(p.x) + int64_t{first_stage_} * kPackedStageFeatures +
         warp_ * p.x_stride + lane_ * 8;
  }

  __device__ void run() {
#pragma unroll
    for (int s = 0; s < kPackedStages; ++s) copy_weights(s);
    commit_copies();
    wait_for_rows();
    copy_x(0);
    commit_copies();
#pragma unroll
    for (int s = 1; s < kXAhead; ++s) copy_x(s);
    commit_copies();
    Sums sum = {};
#pragma unroll 1
    for (int s = 0; s < num_stages_; ++s) {
      wait_for_copies<1>();
      prepare_x(s);
      __syncthreads();
      if constexpr (kHasXToSpare) copy_x(s + kXAhead);  // the stage before has been multiplied
      multiply_stage(s, sum);
      if constexpr (kHasXToSpare) {
        __syncwarp();
      } else {
        __syncthreads();
        copy_x(s + kXAhead);
      }
      copy_weights(s + kPackedStages);
      commit_copies();
    }
    wait_for_copies<0>();
    __syncthreads();
    store_sums(sum);
    if (p_.signal != nullptr) wait_for_predecessor();  // A x has ended when this kernel has
    finish();
  }

 private:
  __device__ void wait_for_rows() const {
    if (p_.signal == nullptr) return wait_for_predecessor();
    if (threadIdx.x == 0) wait_for_x(*p_.signal);
    __syncthreads();
  }

  /// Stages of x that are requested ahead: all there is room for, or one less, so that the next one
  /// can be requested while others still multiply.
  static constexpr int kXStages = PackedShape::x_stages(kRowTiles);
  static constexpr bool kHasXToSpare = kXStages > kPackedStages;
  static constexpr int kXAhead = kHasXToSpare ? kXStages - 1 : kXStages;

  [[nodiscard]] __device__ int features_of(int s) const {
    return min(kPackedStageFeatures, p_.in_features - (first_stage_ + s) * kPackedStageFeatures);
  }
  /// A warp's group in a stage of this ring.
  [[nodiscard]] __device__ std::byte* weights_of(int s, int group) const {
    return shared_ + s % kPackedStages * PackedShape(kType).weight_stage_bytes() +
           (warp_ * kGroups + group) * kShape.group_stage_bytes;
  }
  [[nodiscard]] __device__ std::byte* x_of(int s, int row) const {
    return shared_ + PackedShape(kType).x(s, kRowTiles) + row * kShape.kXRowBytes;
  }
  /// The 8 features of a row that this lane copies.
  [[nodiscard]] __device__ std::byte* own_x(int s, int row) const {
    return x_of(s, row) + PackedShape(kType).place_in_row(row, lane_ * 16);
  }
  /// The sum of a row over the features of a step, as three bf16, the last one twice.
  [[nodiscard]] __device__ uint2* x_sum_of(int s, int row, int step) const {
    return reinterpret_cast<uint2*>(shared_ + PackedShape(kType).x_sums(s, kRowTiles)) +
           (step / 4 * kRows + row) * 4 + step % 4;
  }

  /// Groups past the last one repeat it; nothing stores their outputs.
  __device__ void open_weights() {
    const PackedSlice& slice = p_.slices[tile_.slice];
    const int last_group = (slice.width - 1) / PackedLayout::kGroup;
    const int first_group = tile_.first_output / PackedLayout::kGroup + warp_ * kGroups;
    const int64_t step = int64_t{p_.in_features / kFormat.block_size} * kBlockBytes;
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      weight_[i] = slice.weight + min(first_group + i, last_group) * step +
                   int64_t{first_stage_} * kShape.group_stage_bytes + lane_ * 16;
    }
  }
  /// Of one stage after the other.
  __device__ void copy_weights(int s) {
    if (s >= num_stages_) return;
    const int features = features_of(s);
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      copy_group(shared_address(weights_of(s, i)) + lane_ * 16, weight_[i], features);
      weight_[i] += kShape.group_stage_bytes;
    }
  }
  __device__ void copy_group(uint32_t to, const std::byte* from, int features) const {
    constexpr int kBytes = kShape.group_stage_bytes, kWarpBytes = 32 * 16;
    if (features == kPackedStageFeatures) {
#pragma unroll
      for (int at = 0; at < kBytes; at += kWarpBytes) {
        if (at + kWarpBytes <= kBytes || lane_ * 16 < kBytes - at) {
          copy_async_16(to + at, from + at, 16);
        }
      }
    } else {
      const int bytes = features / kFormat.block_size * kBlockBytes;
#pragma unroll 1
      for (int at = 0; at + lane_ * 16 < bytes; at += kWarpBytes) {
        copy_async_16(to + at, from + at, 16);
      }
    }
  }
  /// A warp copies whole rows, and a lane 8 features of each.
  __device__ void copy_x(int s) {
    if (s >= num_stages_ || lane_ * 8 >= features_of(s)) return;
    const T* const x = x_ + s * kPackedStageFeatures;
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      const int row = warp_ + i * kPackedWarps;
      if (row >= p_.num_rows) break;
      copy_async_16(own_x(s, row), x + i * kPackedWarps * p_.x_stride, 16);
    }
  }

  /// Puts what this lane has copied in the order of the codes; sums x where weights have minima.
  __device__ void prepare_x(int s) {
    if constexpr (kFormat.code_bits == 8) return;
    const bool has_features = lane_ * 8 < features_of(s);
    if (!kFormat.has_min && !has_features) return;
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      const int row = warp_ + i * kPackedWarps;
      if (row >= p_.num_rows) break;
      uint4 v{0, 0, 0, 0};
      if (has_features) {
        auto* const at = reinterpret_cast<uint4*>(own_x(s, row));
        v = *at;
        *at = {__byte_perm(v.x, v.z, 0x5410), __byte_perm(v.x, v.z, 0x7632),
               __byte_perm(v.y, v.w, 0x5410), __byte_perm(v.y, v.w, 0x7632)};
      }
      if constexpr (kFormat.has_min) {
        float sum = sum_of_8<T>(v);
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        if (lane_ % 4 == 0) *x_sum_of(s, row, lane_ / 4) = split_in_three(sum);
      }
    }
  }

  /// Where this lane finds what two steps take, and what it has fetched for one of them.
  struct Place {
    const std::byte *codes, *scales, *x;
  };
  struct Fetched {
    static constexpr bool kHasX = kRowTiles <= 2;  // more have no room in registers
    typename Fragment::Words words[kGroups];
    uint32_t x[kHasX ? kRowTiles : 1][4];
  };

  /// Each step is fetched from shared memory before the previous one is multiplied.
  __device__ void multiply_stage(int s, Sums& sum) {
    const int g = lane_ / 4, steps = features_of(s) / kPackedStepFeatures;
    const std::byte* const stage = weights_of(s, 0);
    Place at{Fragment::codes_of(stage, g, lane_ % 4), Fragment::scales_of(stage, g),
             x_of(s, lane_row())};
    Fetched even, odd;
    fetch(at, 0, even);
    float2 d[kGroups];
    if constexpr (Fragment::kSteps > 1) {
#pragma unroll
      for (int i = 0; i < kGroups; ++i)
        d[i] = Fragment::d_of(stage + i * kShape.group_stage_bytes, g);
    }
    if constexpr (kFormat.has_min) add_minima(s, sum);
#pragma unroll 1
    for (int left = steps; left >= 2; left -= 2) {
      const std::byte* const x = at.x;
      fetch(at, 1, odd);
      multiply(even, d, x, 0, sum);
      const bool has_next = left > 2;
      at.codes += has_next * 2 * Fragment::kCodeBytes;
      at.scales += has_next * 2 * Fragment::kScaleBytes;
      at.x += has_next * 2 * kStepBytes;
      fetch(at, 0, even);  // once more after the last one
      multiply(odd, d, x, 1, sum);
    }
    if (steps % 2 != 0) multiply(even, d, at.x, 0, sum);
  }
  __device__ void fetch(const Place& at, int odd, Fetched& to) const {
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      const int begin = i * kShape.group_stage_bytes;
      to.words[i] = Fragment::fetch(at.codes + begin + odd * Fragment::kCodeBytes,
                                    at.scales + begin + odd * Fragment::kScaleBytes, lane_ % 4);
    }
    if constexpr (Fetched::kHasX) {
#pragma unroll
      for (int t = 0; t < kRowTiles; ++t) load_x(at.x, t, odd, to.x[t]);
    }
  }
  /// A step of all rows.
  __device__ void multiply(const Fetched& of, const float2 (&d)[kGroups], const std::byte* x_at,
                           int odd, Sums& sum) const {
    Fragment weight[kGroups];
#pragma unroll
    for (int i = 0; i < kGroups; ++i) weight[i].unpack(of.words[i], d[i], lane_ % 4);
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t) {
      uint32_t loaded[4];
      if constexpr (!Fetched::kHasX) load_x(x_at, t, odd, loaded);
#pragma unroll
      for (int i = 0; i < kGroups; ++i) {
        if constexpr (Fetched::kHasX) {
          multiply_add(weight[i], of.x[t], sum[t][i]);
        } else {
          multiply_add(weight[i], loaded, sum[t][i]);
        }
      }
    }
  }

  /// The minima of a stage times the sums of x: of a lane's two outputs those of the steps q and
  /// q + 4, as two bf16 that are all of it, times the three of a sum.
  __device__ void add_minima(int s, Sums& sum) {
    const int steps = features_of(s) / kPackedStepFeatures;
    uint32_t minima[kGroups][4];
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int step = half * 4 + lane_ % 4;
        float2 v{0, 0};
        if (step < steps) v = Fragment::minima(weights_of(s, i), step, lane_ / 4);
        minima[i][2 * half] = split_in_two(v.x);
        minima[i][2 * half + 1] = split_in_two(v.y);
      }
    }
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t) {
      const uint2* const at = x_sum_of(s, t * kPackedRowTile, 0) + lane_;
      const uint2 low = at[0], high = at[kRows * 4];
      const uint32_t x[3][2] = {{__byte_perm(low.x, 0, 0x1010), __byte_perm(high.x, 0, 0x1010)},
                                {__byte_perm(low.x, 0, 0x3232), __byte_perm(high.x, 0, 0x3232)},
                                {low.y, high.y}};
#pragma unroll
      for (int i = 0; i < kGroups; ++i) {
#pragma unroll
        for (const auto& part : x) {
          mma_m16n8k16<__nv_bfloat16>(sum[t][i], minima[i], part[0], part[1]);
        }
      }
    }
  }

  /// The row of a tile whose x this lane loads.
  [[nodiscard]] __device__ int lane_row() const {
    return kFormat.code_bits == 8 ? lane_ % 8 : lane_ / 4;
  }
  /// The operand x of the two products of a tile and a step, where its row of the first tile and an
  /// even step begins.
  __device__ void load_x(const std::byte* row, int tile, int odd, uint32_t (&x)[4]) const {
    constexpr int kBits = kFormat.code_bits;
    const int lane_at = kBits == 8 ? lane_ / 8 * 16 : lane_ % 4 * (kBits == 6 ? 8 : 16);
    const int place = PackedShape(kType).place_in_row(lane_row(), odd * kStepBytes + lane_at);
    row += tile * kPackedRowTile * kShape.kXRowBytes;
    if constexpr (kBits == 8) {
      load_matrices(x, shared_address(row + place));
    } else if constexpr (kBits == 6) {
      const uint2 low = *reinterpret_cast<const uint2*>(row + place);
      const uint2 high = *reinterpret_cast<const uint2*>(row + (place ^ 32));
      x[0] = low.x, x[1] = low.y, x[2] = high.x, x[3] = high.y;
    } else {
      const uint4 v = *reinterpret_cast<const uint4*>(row + place);
      x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
    }
  }

  static __device__ void multiply_add(const Fragment& w, const uint32_t (&x)[4], float (&sum)[4]) {
    float part[4] = {};
    mma_m16n8k16<T>(part, w.a[0], x[0], x[1]);
    if constexpr (Fragment::kScales == 2) {
      add_scaled(w.scale[0], part, sum);
#pragma unroll
      for (float& v : part) v = 0.0f;
    }
    mma_m16n8k16<T>(part, w.a[1], x[2], x[3]);
    add_scaled(w.scale[Fragment::kScales - 1], part, sum);
  }
  static __device__ void add_scaled(const float (&scale)[2], const float (&part)[4],
                                    float (&sum)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[i] = __fmaf_rn(scale[i / 2], part[i], sum[i]);
  }

  __device__ void store_sums(const Sums& sum) {
    float* const first = reinterpret_cast<float*>(shared_) + 2 * (lane_ % 4) * kShape.sum_stride +
                         warp_ * kGroups * PackedLayout::kGroup + 2 * (lane_ / 4);
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
      for (int i = 0; i < kGroups; ++i) {
        const float(&v)[4] = sum[t][i];
        float* const to = first + t * kPackedRowTile * kShape.sum_stride + i * PackedLayout::kGroup;
        *reinterpret_cast<float2*>(to) = {v[0], v[2]};
        *reinterpret_cast<float2*>(to + kShape.sum_stride) = {v[1], v[3]};
      }
    }
  }

  /// y of this block's share of the tile's columns, four at a time.
  __device__ void finish() {
    const bool has_cluster = p_.cluster_size > 1;
    if (has_cluster) {
      arrive_at_cluster();
      wait_for_cluster();
    } else {
      __syncthreads();
    }
    constexpr int kQuads = kShape.tile_outputs / 4;
    const int quads = kQuads / p_.cluster_size, first = rank_ * quads;
    for (int i = static_cast<int>(threadIdx.x); i < p_.num_rows * quads; i += kPackedThreads) {
      const int row = i / quads, column = (first + i - row * quads) * 4;
      const auto* const own =
          reinterpret_cast<const float4*>(shared_) + (row * kShape.sum_stride + column) / 4;
      const int output = tile_.first_output + column;
      // Nothing is requested that is not stored: what is stored has come before the block leaves.
      if (output >= p_.slices[tile_.slice].width) continue;
      store_packed<T>(p_, tile_.slice, row, output, has_cluster ? sum_of_cluster(own) : *own);
    }
    if (has_cluster) {  // the others still read this block's sums
      leave_cluster();
      wait_for_cluster();
    }
  }

  /// The sums of all blocks of the cluster, in order.
  [[nodiscard]] __device__ float4 sum_of_cluster(const float4* own) const {
    float4 parts[kMaxPackedCluster];
#pragma unroll
    for (int b = 0; b < kMaxPackedCluster; ++b) {  // all are requested before one is waited for
      if (b < p_.cluster_size) parts[b] = load_of_block(own, static_cast<uint32_t>(b));
    }
    float4 v = parts[0];
#pragma unroll
    for (int b = 1; b < kMaxPackedCluster; ++b) {
      if (b < p_.cluster_size) {
        v = {v.x + parts[b].x, v.y + parts[b].y, v.z + parts[b].z, v.w + parts[b].w};
      }
    }
    return v;
  }

  const PackedParams& p_;
  std::byte* shared_;
  int warp_, lane_, rank_;
  PackedTile tile_;
  int first_stage_, num_stages_;
  const std::byte* weight_[kGroups];  // what this lane copies next
  const T* x_;                        // what this lane copies of the first stage, in its first row
};

template <WeightType kType, class T>
__global__ void __launch_bounds__(kPackedThreads, 2)
    packed_kernel(const __grid_constant__ PackedParams p) {
  extern __shared__ __align__(128) std::byte shared[];
  if (p.signal == nullptr) trigger_dependents();  // else the thread that waits for x does
  fetch_parameters(p);
  switch (packed_row_tiles(p.num_rows)) {
    case 1: return PackedBlock<kType, T, 1>(p, shared).run();
    case 2: return PackedBlock<kType, T, 2>(p, shared).run();
    case 3: return PackedBlock<kType, T, 3>(p, shared).run();
    default: return PackedBlock<kType, T, kPackedRowTiles>(p, shared).run();
  }
}

}  // namespace heddle::cuda::linear_site
