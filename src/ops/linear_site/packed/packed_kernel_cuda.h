#pragma once

#include "cuda/begin_early_cuda.h"
#include "cuda/cluster_cuda.h"
#include "cuda/early_launch.h"
#include "cuda/shared_memory.h"

#include "core/math.h"
#include "ops/linear_site/packed/codes_cuda.h"
#include "ops/linear_site/packed/packed_params.h"
#include "ops/linear_site/packed/packed_shape.h"

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

/// A tile: which slice it is of, and its first output there.
struct PackedTile {
  int slice = 0, first_output;

  __device__ PackedTile(const PackedParams& p, int tile, int tile_outputs) {
#pragma unroll
    for (int s = 0; s < kMaxPackedSlices - 1; ++s) {
      slice += s < p.num_slices - 1 && tile >= p.slices[s].end_tile;
    }
    first_output = (tile - (slice == 0 ? 0 : p.slices[slice - 1].end_tile)) * tile_outputs;
  }
};

template <WeightType kType, class T>
class PackedBlock {
 public:
  static constexpr PackedShape kShape{kType};
  static constexpr BlockFormat kFormat = block_format(kType);
  static constexpr int kGroups = kShape.warp_groups, kRowTiles = kPackedRows / kPackedRowTile;
  static constexpr int kStepBytes = kPackedStepFeatures * 2;  // of x

  __device__ PackedBlock(const PackedParams& p, std::byte* shared)
      : p_(p),
        shared_(shared),
        warp_(__shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 32), 0)),
        lane_(static_cast<int>(threadIdx.x % 32)),
        rows_((p.num_rows + kPackedRowTile - 1) / kPackedRowTile * kPackedRowTile),
        rank_(static_cast<int>(blockIdx.x) % p.cluster_size),
        tile_(p, static_cast<int>(blockIdx.x) / p.cluster_size, kShape.tile_outputs) {
    const int stages = (p.in_features + kPackedStageFeatures - 1) / kPackedStageFeatures;
    first_stage_ = stages * rank_ / p.cluster_size;
    num_stages_ = stages * (rank_ + 1) / p.cluster_size - first_stage_;
  }

  __device__ void run() {
#pragma unroll
    for (int s = 0; s < kPackedStages; ++s) copy_weights(s);
    commit_copies();
    wait_for_predecessor();
#pragma unroll
    for (int s = 0; s < kPackedStages; ++s) {
      copy_x(s);
      commit_copies();
    }
    float sum[kRowTiles][2][kGroups][4] = {};
    for (int s = 0; s < num_stages_; ++s) {
      wait_for_copies<kPackedStages - 1>();
      prepare_x(s);
      __syncthreads();
      multiply_stage(s, sum);
      __syncthreads();
      copy_weights(s + kPackedStages);
      copy_x(s + kPackedStages);
      commit_copies();
    }
    wait_for_copies<0>();
    __syncthreads();
    store_sums(sum);
    finish();
  }

 private:
  [[nodiscard]] __device__ int features_of(int s) const {
    return min(kPackedStageFeatures, p_.in_features - (first_stage_ + s) * kPackedStageFeatures);
  }
  /// A warp's group in a stage of this ring.
  [[nodiscard]] __device__ std::byte* weights_of(int s, int group) const {
    return shared_ + s % kPackedStages * PackedShape(kType).weight_stage_bytes() +
           (warp_ * kGroups + group) * kShape.group_stage_bytes;
  }
  [[nodiscard]] __device__ std::byte* x_of(int s, int row) const {
    return shared_ + PackedShape(kType).x(s % kPackedStages, rows_) + row * kShape.x_row_bytes;
  }
  /// The sum of a row over the features of a step, as three bf16, the last one twice.
  [[nodiscard]] __device__ uint2* x_sum_of(int row, int step) const {
    return reinterpret_cast<uint2*>(shared_ + PackedShape(kType).x_sums(rows_)) +
           (step / 4 * rows_ + row) * 4 + step % 4;
  }

  /// Groups past the last one repeat it; nobody stores their outputs.
  __device__ void copy_weights(int s) {
    if (s >= num_stages_) return;
    const PackedSlice& slice = p_.slices[tile_.slice];
    const int last_group = (slice.width - 1) / PackedLayout::kGroup;
    const int first_group = tile_.first_output / PackedLayout::kGroup + warp_ * kGroups;
    constexpr int kBlockBytes = PackedLayout(kType).block_bytes, kWarpBytes = 32 * 16;
    const int64_t step = int64_t{p_.in_features / kFormat.block_size} * kBlockBytes;
    const int bytes = features_of(s) / kFormat.block_size * kBlockBytes;
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      const std::byte* const from = slice.weight + min(first_group + i, last_group) * step +
                                    int64_t{first_stage_ + s} * kShape.group_stage_bytes;
      const uint32_t to = shared_address(weights_of(s, i));
      if (bytes == kShape.group_stage_bytes) {
#pragma unroll
        for (int at = 0; at < kShape.group_stage_bytes; at += kWarpBytes) {
          if (at + kWarpBytes <= kShape.group_stage_bytes ||
              lane_ * 16 < kShape.group_stage_bytes - at) {
            copy_async_16(to + lane_ * 16 + at, from + lane_ * 16 + at, 16);
          }
        }
      } else {
        for (int at = lane_ * 16; at < bytes; at += kWarpBytes) {
          copy_async_16(to + at, from + at, 16);
        }
      }
    }
  }

  /// A warp copies whole rows, and a lane 8 features of each.
  __device__ void copy_x(int s) {
    if (s >= num_stages_ || lane_ * 8 >= features_of(s)) return;
    const auto* const x =
        static_cast<const T*>(p_.x) + int64_t{first_stage_ + s} * kPackedStageFeatures + lane_ * 8;
    const uint32_t to = shared_address(x_of(s, warp_) + lane_ * 16);
#pragma unroll
    for (int i = 0; i < kPackedRows / kPackedWarps; ++i) {
      const int row = warp_ + i * kPackedWarps;
      if (row >= p_.num_rows) break;
      copy_async_16(to + i * kPackedWarps * kShape.x_row_bytes, x + row * p_.x_stride, 16);
    }
  }

  /// Puts what this lane has copied in the order of the codes; sums x where weights have minima.
  __device__ void prepare_x(int s) {
    if constexpr (kFormat.code_bits == 8) return;
    const bool has_features = lane_ * 8 < features_of(s);
    if (!kFormat.has_min && !has_features) return;
    std::byte* const own = x_of(s, warp_) + lane_ * 16;
#pragma unroll
    for (int i = 0; i < kPackedRows / kPackedWarps; ++i) {
      const int row = warp_ + i * kPackedWarps;
      if (row >= p_.num_rows) break;
      auto* const at = reinterpret_cast<uint4*>(own + i * kPackedWarps * kShape.x_row_bytes);
      uint4 v{0, 0, 0, 0};
      if (has_features) {
        v = *at;
        *at = {__byte_perm(v.x, v.z, 0x5410), __byte_perm(v.x, v.z, 0x7632),
               __byte_perm(v.y, v.w, 0x5410), __byte_perm(v.y, v.w, 0x7632)};
      }
      if constexpr (kFormat.has_min) {
        float sum = sum_of_8<T>(v);
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        if (lane_ % 4 == 0) *x_sum_of(row, lane_ / 4) = split_in_three(sum);
      }
    }
  }

  __device__ void multiply_stage(int s, float (&sum)[kRowTiles][2][kGroups][4]) {
    constexpr int kSteps = kFormat.block_size / kPackedStepFeatures;
    constexpr int kBlockBytes = PackedLayout(kType).block_bytes;
    const std::byte* block = weights_of(s, 0);
    const std::byte* const end = block + features_of(s) / kFormat.block_size * kBlockBytes;
    const std::byte* x = x_of_lane(s);
    if constexpr (kFormat.has_min) add_minima(s, sum);
    if constexpr (kSteps > 1) {
      // Two at once, as far as registers go.
      constexpr int kAtOnce = kGroups == 1 ? 2 : 1;
      WeightFragment<kType, T> weight[kAtOnce][kGroups];
      for (; block < end; block += kBlockBytes) {
#pragma unroll
        for (auto& of_step : weight) open_blocks(block, of_step);
#pragma unroll 1
        for (int step = 0; step < kSteps; step += kAtOnce) {
#pragma unroll
          for (int i = 0; i < kAtOnce; ++i) load_codes(block, step + i, weight[i]);
          multiply_steps(x, weight, sum);
        }
      }
    } else {
      for (; block + kBlockBytes < end; block += 2 * kBlockBytes) {
        WeightFragment<kType, T> weight[2][kGroups];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          open_blocks(block + i * kBlockBytes, weight[i]);
          load_codes(block + i * kBlockBytes, 0, weight[i]);
        }
        multiply_steps(x, weight, sum);
      }
      if (block < end) {
        WeightFragment<kType, T> weight[1][kGroups];
        open_blocks(block, weight[0]);
        load_codes(block, 0, weight[0]);
        multiply_steps(x, weight, sum);
      }
    }
  }
  /// What this warp has of a block, and of 32 features of it.
  __device__ void open_blocks(const std::byte* block, WeightFragment<kType, T> (&weight)[kGroups]) {
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      weight[i].open_block(block + i * kShape.group_stage_bytes, lane_ / 4);
    }
  }
  __device__ void load_codes(const std::byte* block, int step,
                             WeightFragment<kType, T> (&weight)[kGroups]) {
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      weight[i].load(block + i * kShape.group_stage_bytes, step, lane_ / 4, lane_ % 4);
    }
  }

  /// kNum times 32 features of all rows. Goes on in x.
  template <int kNum>
  __device__ void multiply_steps(const std::byte*& x_of_lane,
                                 const WeightFragment<kType, T> (&weight)[kNum][kGroups],
                                 float (&sum)[kRowTiles][2][kGroups][4]) {
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t) {
      if (t * kPackedRowTile >= p_.num_rows) break;
#pragma unroll
      for (int step = 0; step < kNum; ++step) {
        uint32_t x[2][4];
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          const int row = t * kPackedRowTile + n * 8;
          load_x(x_of_lane + row * kShape.x_row_bytes + step * kStepBytes, x[n]);
        }
#pragma unroll
        for (int n = 0; n < 2; ++n) {
#pragma unroll
          for (int i = 0; i < kGroups; ++i) {
            multiply_add(weight[step][i], x[n], sum[t][n][i]);
          }
        }
      }
    }
    x_of_lane += kNum * kStepBytes;
  }

  /// The minima of a stage times the sums of x: of a lane's two outputs those of the steps q and
  /// q + 4, as two bf16 that are all of it, times the three of a sum.
  __device__ void add_minima(int s, float (&sum)[kRowTiles][2][kGroups][4]) {
    const int steps = features_of(s) / kPackedStepFeatures;
    uint32_t minima[kGroups][4];
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int step = half * 4 + lane_ % 4;
        float2 v{0, 0};
        if (step < steps) v = WeightFragment<kType, T>::minima(weights_of(s, i), step, lane_ / 4);
        minima[i][2 * half] = split_in_two(v.x);
        minima[i][2 * half + 1] = split_in_two(v.y);
      }
    }
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t) {
      if (t * kPackedRowTile >= p_.num_rows) break;
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const uint2* const at = x_sum_of(t * kPackedRowTile + n * 8, 0) + lane_;
        const uint2 low = at[0], high = at[rows_ * 4];
        const uint32_t x[3][2] = {{__byte_perm(low.x, 0, 0x1010), __byte_perm(high.x, 0, 0x1010)},
                                  {__byte_perm(low.x, 0, 0x3232), __byte_perm(high.x, 0, 0x3232)},
                                  {low.y, high.y}};
#pragma unroll
        for (int i = 0; i < kGroups; ++i) {
#pragma unroll
          for (const auto& part : x) {
            mma_m16n8k16<__nv_bfloat16>(sum[t][n][i], minima[i], part[0], part[1]);
          }
        }
      }
    }
  }

  /// Where this lane loads x of the first 8 rows and the first 32 features of a stage.
  [[nodiscard]] const __device__ std::byte* x_of_lane(int s) const {
    if constexpr (kFormat.code_bits == 8) return x_of(s, lane_ % 8) + lane_ / 8 * 16;
    return x_of(s, lane_ / 4) + lane_ % 4 * (kFormat.code_bits == 6 ? 8 : 16);
  }
  /// The operand x of two products of 8 rows.
  static __device__ void load_x(const std::byte* at, uint32_t (&x)[4]) {
    if constexpr (kFormat.code_bits == 8) {
      load_matrices(x, shared_address(at));
    } else if constexpr (kFormat.code_bits == 6) {
      const uint2 low = *reinterpret_cast<const uint2*>(at);
      const uint2 high = *reinterpret_cast<const uint2*>(at + 32);
      x[0] = low.x, x[1] = low.y, x[2] = high.x, x[3] = high.y;
    } else {
      const uint4 v = *reinterpret_cast<const uint4*>(at);
      x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
    }
  }

  static __device__ void multiply_add(const WeightFragment<kType, T>& w, const uint32_t (&x)[4],
                                      float (&sum)[4]) {
    float part[4] = {};
    mma_m16n8k16<T>(part, w.a[0], x[0], x[1]);
    if constexpr (WeightFragment<kType, T>::kHasTwoScales) {
      add_scaled(w.scale[0], part, sum);
#pragma unroll
      for (float& v : part) v = 0.0f;
      mma_m16n8k16<T>(part, w.a[1], x[2], x[3]);
      add_scaled(w.scale[1], part, sum);
    } else {
      mma_m16n8k16<T>(part, w.a[1], x[2], x[3]);
      add_scaled(w.scale[0], part, sum);
    }
  }
  static __device__ void add_scaled(const float (&scale)[2], const float (&part)[4],
                                    float (&sum)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[i] = __fmaf_rn(scale[i / 2], part[i], sum[i]);
  }

  __device__ void store_sums(const float (&sum)[kRowTiles][2][kGroups][4]) {
    const int g = lane_ / 4, q = lane_ % 4;
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t) {
      if (t * kPackedRowTile >= p_.num_rows) break;
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        float* const row = reinterpret_cast<float*>(shared_) +
                           (t * kPackedRowTile + n * 8 + 2 * q) * kShape.sum_stride;
#pragma unroll
        for (int i = 0; i < kGroups; ++i) {
          const float(&v)[4] = sum[t][n][i];
          float* const to = row + (warp_ * kGroups + i) * PackedLayout::kGroup + 2 * g;
          *reinterpret_cast<float2*>(to) = {v[0], v[2]};
          *reinterpret_cast<float2*>(to + kShape.sum_stride) = {v[1], v[3]};
        }
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
      // Nothing is asked for that is not stored: what is stored has come before the block leaves.
      if (output >= p_.slices[tile_.slice].width) continue;
      store(row, output, has_cluster ? sum_of_cluster(own) : *own);
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
    for (int b = 0; b < kMaxPackedCluster; ++b) {  // all are asked for before one is waited for
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

  __device__ void store(int row, int output, const float4& of) const {
    const PackedSlice& slice = p_.slices[tile_.slice];
    const int num = min(4, slice.width - output);
    float v[4] = {of.x, of.y, of.z, of.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (slice.bias != nullptr && i < num)
        v[i] += widen(static_cast<const T*>(slice.bias)[output + i]);
    }
    const int64_t at = row * slice.y_stride + output;
    if (p_.y_dtype == DType::kFloat32) {
      auto* const y = static_cast<float*>(slice.y) + at;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (i < num) y[i] = v[i];
      }
      return;
    }
    auto* const y = static_cast<T*>(slice.y) + at;
    if (num == 4 && reinterpret_cast<uintptr_t>(y) % 8 == 0) {
      *reinterpret_cast<uint2*>(y) = {narrow_two<T>({v[0], v[1]}), narrow_two<T>({v[2], v[3]})};
      return;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i < num) y[i] = narrow<T>(v[i]);
    }
  }

  const PackedParams& p_;
  std::byte* shared_;
  int warp_, lane_, rows_, rank_;
  PackedTile tile_;
  int first_stage_, num_stages_;
};

template <WeightType kType, class T>
__global__ void __launch_bounds__(kPackedThreads, 2)
    packed_kernel(const __grid_constant__ PackedParams p) {
  extern __shared__ __align__(128) std::byte shared[];
  trigger_dependents();
  fetch_parameters(p);
  PackedBlock<kType, T>(p, shared).run();
}

/// Rows of a launch in this much shared memory.
[[nodiscard]] constexpr int packed_rows_in(const PackedShape& shape, int shared_bytes) {
  int rows = kPackedRowTile;
  while (rows < kPackedRows && shape.bytes(rows + kPackedRowTile) <= shared_bytes) {
    rows += kPackedRowTile;
  }
  return rows;
}

template <WeightType kType, class T>
void launch_packed_format(const ExecContext& ctx, PackedParams p) {
  constexpr PackedShape kShape(kType);
  constexpr auto kKernel = packed_kernel<kType, T>;
  constexpr int kSmall = packed_rows_in(kShape, kPortableSharedBytes);
  static_assert(kShape.bytes(kPackedRows) <= kLargeSharedBytes);
  const int chip = ctx.info.compute_capability / 10, device = ctx.device.index;
  const int launch_rows = chip == 9 || chip == 10 ? kPackedRows : kSmall;
  int tiles = 0;
  for (int s = 0; s < p.num_slices; ++s) {
    tiles += ceil_div(p.slices[s].width, kShape.tile_outputs);
    p.slices[s].end_tile = tiles;
  }
  if (tiles == 0) return;
  p.cluster_size = can_start_early<kKernel>(device) ? packed_cluster_size(tiles, p.in_features) : 1;
  const PackedParams all = p;
  for (int row = 0; row < all.num_rows; row += launch_rows) {
    p.num_rows = std::min(launch_rows, all.num_rows - row);
    p.x = static_cast<const T*>(all.x) + row * p.x_stride;
    for (int s = 0; s < p.num_slices; ++s) {
      const int64_t bytes = p.y_dtype == DType::kFloat32 ? sizeof(float) : sizeof(T);
      p.slices[s].y = static_cast<std::byte*>(all.slices[s].y) + row * p.slices[s].y_stride * bytes;
    }
    const int shared = kShape.bytes(round_up(p.num_rows, kPackedRowTile));
    allow_shared_memory<kKernel, kShape.bytes(kSmall), kShape.bytes(kPackedRows)>(device, shared);
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(tiles * p.cluster_size));
    config.blockDim = dim3(kPackedThreads);
    config.dynamicSmemBytes = static_cast<size_t>(shared);
    config.stream = ctx.stream;
    launch_clusters_early<kKernel>(device, config, static_cast<unsigned>(p.cluster_size), p);
  }
}

template <class T>
void launch_packed_rows(const ExecContext& ctx, const PackedParams& p, WeightType type) {
  switch (type) {
    case WeightType::kQ8_0: return launch_packed_format<WeightType::kQ8_0, T>(ctx, p);
    case WeightType::kQ4_0: return launch_packed_format<WeightType::kQ4_0, T>(ctx, p);
    case WeightType::kQ4_1: return launch_packed_format<WeightType::kQ4_1, T>(ctx, p);
    case WeightType::kQ5_0: return launch_packed_format<WeightType::kQ5_0, T>(ctx, p);
    case WeightType::kQ5_1: return launch_packed_format<WeightType::kQ5_1, T>(ctx, p);
    case WeightType::kQ4K: return launch_packed_format<WeightType::kQ4K, T>(ctx, p);
    case WeightType::kQ5K: return launch_packed_format<WeightType::kQ5K, T>(ctx, p);
    case WeightType::kQ6K: return launch_packed_format<WeightType::kQ6K, T>(ctx, p);
    default: return;  // linear_site takes no dense type packed
  }
}

}  // namespace heddle::cuda::linear_site
