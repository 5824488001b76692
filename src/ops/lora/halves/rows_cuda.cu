#include "cuda/begin_early_cuda.h"
#include "cuda/check.h"
#include "cuda/cluster_cuda.h"
#include "cuda/early_launch.h"
#include "cuda/mma_cuda.h"

#include "core/math.h"
#include "ops/lora/halves/half_params.h"
#include "ops/lora_device/operands_cuda.h"
#include "ops/lora_device/outputs_cuda.h"
#include "ops/lora_device/shrink_tile_cuda.h"
#include "ops/lora_device/valid_slot_cuda.h"

namespace heddle::cuda::lora {
namespace {

// Half of a LoRA product for few rows without a plan, of which each is a row tile. A row waits for
// memory twice: for its slot, and for the weights of that; all else is asked for before. The
// products are those of half_kernel with this row as the first of 8, in the same order, so that the
// row has the same bits.

/// The slot of a row. All lanes of a warp call it.
__device__ int slot_of_row(const HalfParams& p, int row) {
  const int64_t at = p.first_row + row;
  if (p.rows.slot_ids.is_given()) return valid_slot(p.rows.slot_ids.at(at), p.rows.num_slots);
  int last = -1, slot = kNoAdapter;  // the last segment of this lane that has the row
  for (int s = static_cast<int>(threadIdx.x % 32); s < p.rows.num_segments; s += 32) {
    const int64_t start = p.rows.seg_starts.at(s), end = p.rows.end(s, start);
    const int of_segment = slot_of_segment(p.rows, s);
    if (start <= at && at < end) last = s, slot = of_segment;
  }
  const int of_warp = __reduce_max_sync(kAllLanes, last);
  const unsigned lanes = __ballot_sync(kAllLanes, last == of_warp);
  return __shfl_sync(kAllLanes, slot, __ffs(static_cast<int>(lanes)) - 1);
}

/// Eight elements from k on, zeros where they lie behind the last of `left`, which is a multiple.
template <class T>
__device__ uint4 load_8(const T* from, int k, int left) {
  return k < left ? *reinterpret_cast<const uint4*>(from + k) : uint4{0, 0, 0, 0};
}

struct ShrinkRowShared {
  float sums[kRowChunks][kBlockWarps][kTileRanks];  // of a chunk's warps
  alignas(16) float chain[kTileRanks];              // read by the first block of the cluster
};

/// 16 ranks of h of a row: block c of the cluster has chain c.
template <class T>
__device__ void shrink_row(const HalfParams& p, ShrinkRowShared& s) {
  const int row = static_cast<int>(blockIdx.y);
  const int first_rank = static_cast<int>(blockIdx.z) * kTileRanks;
  const int chain = static_cast<int>(cluster_rank());
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const int g = lane / 4, q = lane % 4, in = static_cast<int>(p.in_features);
  const T* x = static_cast<const T*>(p.input) + row * p.input_stride;
  const int in_chunk = warp * 64 + q * 8;  // this lane's first features of a chunk
  const auto load_x = [&](int chunk, int block) {
    return load_8(x, chunk * kChunkFeatures + in_chunk + block * 32, g == 0 ? in : 0);
  };
  uint4 of_x[2] = {load_x(chain, 0), load_x(chain, 1)};
  const int slot = slot_of_row(p, row);
  const LoraWeight weight = slot < 0 ? LoraWeight{} : read_weight(p.a, slot, 0);
  if (slot < 0 || weight.data == nullptr || first_rank >= weight.rank) return;  // the whole cluster
  const T* a = static_cast<const T*>(weight.data);
  const auto load_a = [&](int chunk, int block, int r) {
    const int64_t at = (first_rank + r) * weight.row_stride;
    return load_8(a + at, chunk * kChunkFeatures + in_chunk + block * 32,
                  first_rank + r < weight.rank ? in : 0);
  };
  int done = 0;
#pragma unroll 2
  for (int chunk = chain; chunk < p.num_chunks; chunk += kChains, ++done) {
    uint4 low[2], high[2];
#pragma unroll
    for (int block = 0; block < 2; ++block) {
      low[block] = load_a(chunk, block, g);
      high[block] = load_a(chunk, block, g + 8);
      if (done > 0) of_x[block] = load_x(chunk, block);
    }
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int block = 0; block < 2; ++block) {
      multiply_block<T>(low[block], high[block], of_x[block], sum);
    }
    if (q == 0) {
      s.sums[done][warp][g] = sum[0];
      s.sums[done][warp][g + 8] = sum[2];
    }
  }
  __syncthreads();
  const int t = static_cast<int>(threadIdx.x);
  if (t < kTileRanks) {
    float of_chain = kNoSum;
    for (int i = 0; i < done; ++i) {
      float of_chunk = s.sums[i][0][t];
#pragma unroll
      for (int w = 1; w < kBlockWarps; ++w) of_chunk += s.sums[i][w][t];
      of_chain += of_chunk;
    }
    s.chain[t] = of_chain;
  }
  arrive_at_cluster();
  wait_for_cluster();
  if (chain == 0 && t < kTileRanks / 4) {
    float4 c[kChains];
#pragma unroll
    for (int i = 0; i < kChains; ++i) {
      c[i] = load_of_block(reinterpret_cast<const float4*>(s.chain) + t, static_cast<uint32_t>(i));
    }
    const float factor = p.row_scale != nullptr ? p.scale * p.row_scale[row] : p.scale;
    with_type(p.y_dtype, [&](auto type) {
      using Y = decltype(type);
      Y* y = static_cast<Y*>(p.slices[0].y) + row * p.slices[0].y_stride + first_rank + 4 * t;
      const auto store = [&](int i, float c0, float c1, float c2, float c3, float c4, float c5,
                             float c6, float c7) {
        if (first_rank + 4 * t + i >= weight.rank) return;
        const float h = ((c0 + c1) + (c2 + c3)) + ((c4 + c5) + (c6 + c7));
        y[i] = finish(p.accumulate ? y[i] : Y{}, factor, h, p.accumulate);
      };
      store(0, c[0].x, c[1].x, c[2].x, c[3].x, c[4].x, c[5].x, c[6].x, c[7].x);
      store(1, c[0].y, c[1].y, c[2].y, c[3].y, c[4].y, c[5].y, c[6].y, c[7].y);
      store(2, c[0].z, c[1].z, c[2].z, c[3].z, c[4].z, c[5].z, c[6].z, c[7].z);
      store(3, c[0].w, c[1].w, c[2].w, c[3].w, c[4].w, c[5].w, c[6].w, c[7].w);
    });
  }
  arrive_at_cluster();  // no block ends while another reads its shared memory
  wait_for_cluster();
}

/// h of four ranks from `first` on, as products take it: hi of two and two, lo of two and two.
template <class T>
__device__ uint4 split_h(const HalfParams& p, int row, int first, int rank) {
  uint4 words{0, 0, 0, 0};
  if (first >= rank) return words;
  with_type(p.input_dtype, [&](auto type) {
    using U = decltype(type);
    const U* h = static_cast<const U*>(p.input) + row * p.input_stride + first;
    T* to = reinterpret_cast<T*>(&words);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float v = first + i < rank ? widen(h[i]) : 0.0f;
      to[i] = narrow<T>(v);
      to[4 + i] = narrow<T>(v - widen(to[i]));
    }
  });
  return words;
}

/// 256 outputs of a row.
template <class T>
__device__ void expand_row(const HalfParams& p) {
  const int row = static_cast<int>(blockIdx.y), lane = static_cast<int>(threadIdx.x % 32);
  const int g = lane / 4, q = lane % 4, width = p.slices[0].width;
  const int n = static_cast<int>(blockIdx.x) * kTileOutputs + output_of_lane(0);
  T* const y = static_cast<T*>(p.slices[0].y) + row * p.slices[0].y_stride + n;
  const bool stores = q == 0 && n < width;
  uint2 old{0, 0};
  if (stores && p.accumulate) old = *reinterpret_cast<const uint2*>(y);
  // Of the first step; zeros in all rows of the operand but the first.
  const bool is_narrow = p.max_rank <= kTileRanks;
  uint4 first_h = split_h<T>(p, row, is_narrow ? 4 * q : 8 * q, g == 0 ? p.max_rank : 0);
  const int slot = slot_of_row(p, row);
  if (slot < 0) return;
  const LoraWeight weight = read_weight(p.b, slot, 0);
  const int rank = weight.data == nullptr ? 0 : weight.rank;
  if (rank <= 0) return;
  const T* b = static_cast<const T*>(weight.data) + int64_t{n} * weight.row_stride;
  float sum[2][4] = {};
  if (rank <= kTileRanks) {
    uint2 w[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool in_range = 4 * q < rank && n + i < width;
      w[i] = in_range ? *reinterpret_cast<const uint2*>(b + i * weight.row_stride + 4 * q)
                      : uint2{0, 0};
    }
    if (rank < p.max_rank || !is_narrow) {
      first_h = split_h<T>(p, row, 4 * q, g == 0 ? rank : 0);
    }
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const uint32_t a[4] = {w[2 * pair].x, w[2 * pair + 1].x, w[2 * pair].y, w[2 * pair + 1].y};
      mma_m16n8k16<T>(sum[pair], a, first_h.x, first_h.y);
      mma_m16n8k16<T>(sum[pair], a, first_h.z, first_h.w);
    }
  } else {
#pragma unroll 2
    for (int block = 0; block < rank; block += kHPairRanks) {
      const int k = block + 8 * q;
      uint4 w[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        w[i] = load_8(b + i * weight.row_stride, k, n + i < width ? rank : 0);
      }
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        const uint4 h = split_h<T>(p, row, k + 4 * step, g == 0 ? rank : 0);
#pragma unroll
        for (int pair = 0; pair < 2; ++pair) {
          const uint4 &low = w[2 * pair], &high = w[2 * pair + 1];
          const uint32_t a[4] = {word(low, 2 * step), word(high, 2 * step), word(low, 2 * step + 1),
                                 word(high, 2 * step + 1)};
          mma_m16n8k16<T>(sum[pair], a, h.x, h.y);
          mma_m16n8k16<T>(sum[pair], a, h.z, h.w);
        }
      }
    }
  }
  if (!stores) return;
  const float scale = p.scale * weight.scale;
  const float factor = p.row_scale != nullptr ? scale * p.row_scale[row] : scale;
  T* four = reinterpret_cast<T*>(&old);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    four[i] = finish(four[i], factor, sum[i / 2][i % 2 * 2], p.accumulate);
  }
  *reinterpret_cast<uint2*>(y) = old;
}

// Grid: 8 blocks of a cluster, rows, rank tiles.
__global__ void __launch_bounds__(kBlockThreads)
    shrink_rows_kernel(const __grid_constant__ HalfParams p) {
  __shared__ ShrinkRowShared shared;
  begin_early(p);
  p.is_bf16 ? shrink_row<__nv_bfloat16>(p, shared) : shrink_row<__half>(p, shared);
}

// Grid: blocks of 256 outputs, rows.
__global__ void __launch_bounds__(kBlockThreads)
    expand_rows_kernel(const __grid_constant__ HalfParams p) {
  begin_early(p);
  p.is_bf16 ? expand_row<__nv_bfloat16>(p) : expand_row<__half>(p);
}

cudaLaunchConfig_t rows_config(dim3 grid, cudaStream_t stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(kBlockThreads);
  config.stream = stream;
  return config;
}

}  // namespace

bool can_shrink_rows(int device) { return can_start_early<shrink_rows_kernel>(device); }

void launch_shrink_rows(const HalfParams& p, int device, cudaStream_t stream) {
  const auto rows = static_cast<unsigned>(p.num_rows);
  const auto config = rows_config({kChains, rows, static_cast<unsigned>(p.num_rank_tiles)}, stream);
  launch_clusters_early<shrink_rows_kernel>(device, config, kChains, p);
}

void launch_expand_rows(const HalfParams& p, int device, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(ceil_div(p.slices[0].width, kTileOutputs));
  const auto config = rows_config({blocks, static_cast<unsigned>(p.num_rows), 1}, stream);
  launch_early<expand_rows_kernel>(device, config, p);
}

}  // namespace heddle::cuda::lora
