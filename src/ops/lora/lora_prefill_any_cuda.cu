#include "cuda/shared_memory.h"

#include "ops/lora/lora_outputs_cuda.h"
#include "ops/lora/lora_prefill_launch_cuda.h"
#include "ops/lora/lora_prefill_round_cuda.h"

namespace heddle::cuda {
namespace {

// The second kernel for batches of many rows where something is not aligned, B is transposed, or y has another dtype than the weights:
// the bits of lora_prefill_expand_cuda.cu. What a warp multiplied goes through shared memory, so that its lanes read and
// write outputs that lie one behind the other, one element each.

constexpr int kWarps = kAnyForm.warps, kColumns = kAnyForm.warp_outputs / kProductOutputs;
constexpr int kTiles = 4;  // of rows, for which a warp loads weights once
static_assert(kAnyForm.warp_outputs == kGroupOutputs);  // a lane has one output of a row

/// Sums of 16 rows and a group of outputs, rows so far apart that no two lanes of a quarter of a warp meet in a bank.
using StagedSums = float[kProductRows][kGroupOutputs + 4];
static_assert(kHeadBytes + kWarps * int{sizeof(StagedSums)} + kAnyHValues * 4 <=
              kPortableSharedBytes);

/// The outputs and tiles of rows of a warp. Where there are few outputs, warps share the rows.
struct WarpShare {
  int first_output;
  int first_tile, tiles, step;  // so many, then those `step` further

  __device__ WarpShare(int first, int width) {
    const int warp = static_cast<int>(threadIdx.x / 32);
    const int across = min(kWarps, (width - first + kGroupOutputs - 1) / kGroupOutputs);
    const int along = kWarps / across;
    constexpr int kAllTiles = kRowTileRows / kProductRows;
    tiles = min(kTiles, kAllTiles / along);
    first_output = first + warp % across * kGroupOutputs;
    // Warps that are left over have no rows.
    first_tile = warp / across < along ? warp / across * tiles : kAllTiles;
    step = along * tiles;
  }
};
static_assert(kWarps <= kRowTileRows / kProductRows);

/// B as it lies in memory.
struct AnyWeights {
  const std::byte* b;
  int64_t output_bytes, rank_bytes;  // from one to the next
  int rank, left;                    // outputs from the warp's first one on
  bool is_in_lines;

  __device__ AnyWeights(const LoraPrefillParams& p, const PrefillShared& s, int first_output,
                        int width)
      : output_bytes(p.site.is_transposed_b ? 2 : s.b_stride),
        rank_bytes(p.site.is_transposed_b ? s.b_stride : 2),
        rank(s.rank),
        left(width - first_output),
        is_in_lines(!p.site.is_transposed_b &&
                    (reinterpret_cast<uintptr_t>(s.b) | static_cast<uintptr_t>(s.b_stride)) % 16 ==
                        0) {
    b = s.b + first_output * output_bytes;
  }

  /// What a lane multiplies of all ranks up to 16, or of 32 of more, as Weights::load has it.
  __device__ void load(int first_rank, Weights<2, kColumns>& to) const {
    const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    const bool is_narrow = rank <= 16;
    const int each = is_narrow ? 4 : 8, first = first_rank + q * each;
    const int num = max(0, min(each, rank - first));
    const std::byte* const from = b + first * rank_bytes;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      const int output = output_of(i, g);
      const std::byte* const at = from + output * output_bytes;
      uint4 v{0, 0, 0, 0};
      if (output < left) {
        if (is_in_lines && num == 8) {
          v = __ldg(reinterpret_cast<const uint4*>(at));
        } else if (is_in_lines && is_narrow && num == 4) {
          const uint2 two = __ldg(reinterpret_cast<const uint2*>(at));
          v.x = two.x, v.y = two.y;
        } else {
          v = gather_8(reinterpret_cast<const uint16_t*>(at), rank_bytes / 2, num);
        }
      }
      to.v[i][0] = {v.x, v.y};
      to.v[i][1] = {v.z, v.w};
    }
  }
};

/// What 16 rows hold at this lane's output, as it lies in memory.
using OldOutputs = uint32_t[kProductRows];

template <class Y>
__device__ uint32_t bits_of(const Y* y) {
  if constexpr (sizeof(Y) == 4) return *reinterpret_cast<const uint32_t*>(y);
  return *reinterpret_cast<const uint16_t*>(y);
}
template <class Y>
__device__ Y from_bits(uint32_t bits) {
  if constexpr (sizeof(Y) == 4) {
    return __uint_as_float(bits);
  } else {
    const auto low = static_cast<uint16_t>(bits);
    return reinterpret_cast<const Y&>(low);
  }
}

/// Asks for what 16 rows hold at output n.
__device__ void load_old(const LoraPrefillParams& p, const PrefillShared& s, int tile, int n,
                         int width, OldOutputs& old) {
  if (!p.site.accumulate) return;
  with_type(p.site.y_dtype, [&](auto type) {
    using Y = decltype(type);
#pragma unroll
    for (int i = 0; i < kProductRows; ++i) {
      const int row = tile * kProductRows + i;
      if (row < s.num_rows && n < width) old[i] = bits_of(reinterpret_cast<const Y*>(s.y[row]) + n);
    }
  });
}

/// Adds the sums of 16 rows to output n.
__device__ void store_rows(const LoraPrefillParams& p, const PrefillShared& s, int tile, int n,
                           int width, const OldOutputs& old, const Sums<kColumns>& sum,
                           StagedSums& staged) {
  const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  __syncwarp();  // all have read the rows before
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    auto* const to = reinterpret_cast<float4*>(&staged[8 * j + g][q * kLaneOutputs]);
    to[0] = {sum[0][2 * j], sum[0][2 * j + 1], sum[1][2 * j], sum[1][2 * j + 1]};
    to[1] = {sum[2][2 * j], sum[2][2 * j + 1], sum[3][2 * j], sum[3][2 * j + 1]};
  }
  __syncwarp();
  with_type(p.site.y_dtype, [&](auto type) {
    using Y = decltype(type);
#pragma unroll
    for (int i = 0; i < kProductRows; ++i) {
      const int row = tile * kProductRows + i;
      if (row >= s.num_rows || n >= width) continue;
      reinterpret_cast<Y*>(s.y[row])[n] =
          finish(from_bits<Y>(old[i]), s.factor[row], staged[i][lane], p.site.accumulate);
    }
  });
}

/// Tiles [first_tile, first_tile + tiles) of rows, whose h is there: those of this warp.
template <class T>
__device__ void run_share(const LoraPrefillParams& p, const PrefillShared& s, const HVector* h,
                          int first_tile, int tiles, int width, const WarpShare& share,
                          StagedSums& staged) {
  const int steps = num_steps(s.rank), lane = threadIdx.x % 32, n = share.first_output + lane;
  const AnyWeights weights(p, s, share.first_output, width);
#pragma unroll 1
  for (int base = share.first_tile; base < tiles; base += share.step) {
    const int num = min(share.tiles, tiles - base);
    OldOutputs old[kTiles] = {};
    Sums<kColumns> sum[kTiles] = {};
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      if (i < num) load_old(p, s, first_tile + base + i, n, width, old[i]);
    }
    Weights<2, kColumns> next;
    weights.load(0, next);
#pragma unroll 1
    for (int step = 0; step < steps; step += 2) {
      const Weights<2, kColumns> b = next;
      if (step + 2 < steps) weights.load(step * 16 + 32, next);
      __syncwarp();
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        if (step + k >= steps) break;
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
          if (i >= num) break;
          multiply<T>(HPair(h + ((base + i) * steps + step + k) * kHTileVectors + lane), b, k,
                      sum[i]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      if (i < num) store_rows(p, s, first_tile + base + i, n, width, old[i], sum[i], staged);
    }
  }
}

// y (+)= factor * h B^T: a block takes a share of the rounds and keeps h of the row tile in shared memory as hi + lo. Grid: blocks that
// run at once.
template <class T, bool kIsTensor>
__global__ void __launch_bounds__(kWarps * 32, kAnyForm.blocks)
    prefill_any_expand_kernel(const __grid_constant__ LoraPrefillParams p) {
  extern __shared__ uint4 memory[];
  auto& s = *reinterpret_cast<PrefillShared*>(memory);
  auto* const staged = reinterpret_cast<StagedSums*>(memory + kHeadBytes / sizeof(uint4));
  auto* const h = reinterpret_cast<HVector*>(staged + kWarps);
  if constexpr (!kIsTensor) wait_for_predecessor();
  const int num_tiles = p.plan.head->num_tiles;
  const int total = num_tiles * p.rounds_per_tile;
  const int block = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x);
  const int each = total / blocks, more = total - each * blocks;
  const int begin = block * each + min(block, more), end = begin + each + (block < more);
  const int parts = kIsTensor ? 1 : StrandSplit(p, num_tiles).parts;
  const int y_bytes = p.site.y_dtype == DType::kFloat32 ? 4 : 2;
  int held_tile = -1, held_slice = -1;
#pragma unroll 1
  for (int index = begin; index < end; ++index) {
    const Round round(p, index, kWarps * kAnyForm.warp_outputs);
    const bool is_new = round.tile != held_tile || round.slice != held_slice;
    if (is_new) {
      __syncthreads();
      describe<kWarps * 32>(p, round, y_bytes, s);
      __syncthreads();
    }
    held_tile = round.tile, held_slice = round.slice;
    if (s.rank == 0) continue;
    const int width = p.site.slices[round.slice].width;
    const WarpShare share(round.first, width);
    const int tiles = (s.num_rows + kProductRows - 1) / kProductRows;
    // Where h of all rows has no place, some rows come at a time.
    const int fit = max(1, p.h_values / (16 * kProductRows * num_steps(s.rank)));
    for (int first_tile = 0; first_tile < tiles; first_tile += fit) {
      const int some = min(fit, tiles - first_tile);
      if (is_new || fit < tiles) {
        __syncthreads();
        make_h<T, kWarps, kIsTensor>(p, s, round.slice, first_tile * kProductRows, some, parts, h);
        __syncthreads();
      }
      run_share<T>(p, s, h, first_tile, some, width, share, staged[threadIdx.x / 32]);
    }
  }
}

constexpr int kSumThreads = 256, kSumBlocks = 4;  // of a multiprocessor

// y (+)= factor * h of lora_shrink: a block has a row tile of a slice at a time, a thread four ranks of a row.
__global__ void __launch_bounds__(kSumThreads)
    prefill_sum_kernel(const __grid_constant__ LoraPrefillParams p) {
  wait_for_predecessor();
  const LoraParams& site = p.site;
  const int num_tiles = p.plan.head->num_tiles;
  const int parts = StrandSplit(p, num_tiles).parts;
#pragma unroll 1
  for (int index = static_cast<int>(blockIdx.x); index < num_tiles * site.num_slices;
       index += static_cast<int>(gridDim.x)) {
    const int tile_index = index / site.num_slices, s = index - tile_index * site.num_slices;
    const LoraSliceParams& slice = site.slices[s];
    const LoraRowTile tile = p.plan.tiles[tile_index];
    const int rank = SlotWeights(p, tile, s).rank, quads = (rank + 3) / 4;
    for (int i = static_cast<int>(threadIdx.x); i < tile.num_rows * quads; i += kSumThreads) {
      const int of_tile = i / quads, first = (i - of_tile * quads) * 4;
      const float4 h = load_h(p, s, tile.first + of_tile, first, parts);
      const float v[4] = {h.x, h.y, h.z, h.w};
      const int64_t row = p.plan.rows[tile.first + of_tile];
      const float factor =
          site.row_scale != nullptr ? site.scale * site.row_scale[row] : site.scale;
      with_type(site.y_dtype, [&](auto type) {
        using Y = decltype(type);
        Y* const y = static_cast<Y*>(slice.y) + row * slice.y_stride + first;
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          if (first + k >= rank) break;
          y[k] = finish(site.accumulate ? y[k] : Y{}, factor, v[k], site.accumulate);
        }
      });
    }
  }
}

template <class T, bool kIsTensor>
void run(const LoraPrefillParams& p, const LoraPrefillLaunch& launch) {
  constexpr auto kKernel = prefill_any_expand_kernel<T, kIsTensor>;
  const int bytes = kHeadBytes + kWarps * int{sizeof(StagedSums)} + p.h_values * 4;
  allow_shared_memory<kKernel, kPortableSharedBytes>(launch.device);
  launch_second(kKernel, p, launch, launch.config.expand_blocks, kWarps * 32, bytes, !kIsTensor);
}

}  // namespace

template <>
void launch_prefill_expand_any<bfloat16>(const LoraPrefillParams& p,
                                         const LoraPrefillLaunch& launch) {
  p.has_a ? run<__nv_bfloat16, false>(p, launch) : run<__nv_bfloat16, true>(p, launch);
}
template <>
void launch_prefill_expand_any<half>(const LoraPrefillParams& p, const LoraPrefillLaunch& launch) {
  p.has_a ? run<__half, false>(p, launch) : run<__half, true>(p, launch);
}

void launch_prefill_sum(const LoraPrefillParams& p, const LoraPrefillLaunch& launch) {
  launch_second(prefill_sum_kernel, p, launch, kSumBlocks * p.shrink_blocks, kSumThreads, 0, true);
}

}  // namespace heddle::cuda
