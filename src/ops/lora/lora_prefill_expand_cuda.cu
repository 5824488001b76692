#include "cuda/check.h"
#include "cuda/convert_cuda.h"
#include "cuda/shared_memory.h"

#include "ops/lora/lora_prefill_site_cuda.h"

namespace heddle::cuda {
namespace {

constexpr int kLaneOutputs = 8;  // of a row: 16 bytes of y

/// Of lane (g, q) for 16 ranks and a tile of 8 rows: hi of two and two ranks of row g, then lo.
using HVector = uint4;

struct Shared {
  // The row tile and slice whose h and rows are here.
  const std::byte* b;
  int64_t b_stride;  // bytes
  int32_t rank;      // 0: nothing to do
  int32_t first_row, num_rows;
  float scale;
  std::byte* y[kRowTileRows];  // output 0 of each row
  float factor[kRowTileRows];
};
constexpr int kHeadBytes = (sizeof(Shared) + 127) / 128 * 128;

/// A row tile, a slice and as many outputs of it as a block of kWarps warps has at once.
template <int kWarps>
struct Round {
  int tile, slice, first;

  __device__ Round(const LoraPrefillParams& p, int index) {
    tile = index / p.rounds_per_tile;
    int local = index - tile * p.rounds_per_tile;
    slice = 0;
    while (local >= p.round_end[slice]) ++slice;
    if (slice > 0) local -= p.round_end[slice - 1];
    first = local * kWarps * kWarpOutputs;
  }
};

/// Ranks are multiplied 16 at a time. In an adapter with more, lane q has 8 of each 32, so the products are two and two.
__device__ int num_steps(int rank) { return rank <= 16 ? 1 : (rank + 31) / 32 * 2; }

template <int kWarps>
__device__ void describe(const LoraPrefillParams& p, const Round<kWarps>& round, Shared& s) {
  const LoraParams& site = p.site;
  const LoraSliceParams& slice = site.slices[round.slice];
  const LoraRowTile tile = p.plan.tiles[round.tile];
  const SlotWeights weights(p, tile, round.slice);
  const LoraWeight& b = weights.b;
  const float scale = site.scale * b.scale;
  if (threadIdx.x == 0) {
    s.b = static_cast<const std::byte*>(b.data);
    s.b_stride = b.row_stride * 2;
    s.rank = weights.rank;
    s.first_row = tile.first;
    s.num_rows = tile.num_rows;
  }
  for (int i = static_cast<int>(threadIdx.x); i < tile.num_rows; i += kWarps * 32) {
    const int64_t row = p.plan.rows[tile.first + i];
    s.y[i] = static_cast<std::byte*>(slice.y) + row * slice.y_stride * 2;
    s.factor[i] = site.row_scale != nullptr ? scale * site.row_scale[row] : scale;
  }
}

/// Four ranks of h of one row: the sums of its subtrees, or values of a tensor.
__device__ float4 load_h(const LoraPrefillParams& p, int slice, int row, int rank, int parts) {
  const float* from = p.partials + int64_t{row} * p.h_width + slice * p.slice_ranks + rank;
  float4 v[kLoraStrands];
#pragma unroll
  for (int i = 0; i < kLoraStrands; ++i) {
    if (i < parts) v[i] = __ldcg(reinterpret_cast<const float4*>(from + i * p.part_stride));
  }
  const auto join = [&](int num) {
#pragma unroll
    for (int i = 0; i < kLoraStrands / 2; ++i) {
      if (i >= num) break;
      const float4 x = v[2 * i], y = v[2 * i + 1];
      v[i] = {x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w};
    }
  };
  if (parts == 8) join(4);
  if (parts >= 4) join(2);
  join(1);
  return v[0];
}

__device__ float4 load_tensor_h(const LoraParams& site, int64_t row, int rank, int num) {
  float v[4];
  with_type(site.u_dtype, [&](auto type) {
    using U = decltype(type);
    const U* from = static_cast<const U*>(site.u) + row * site.u_stride + rank;
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] = i < num ? widen(from[i]) : 0.0f;
  });
  return {v[0], v[1], v[2], v[3]};
}

template <class T>
__device__ uint32_t pack(T low, T high) {
  return static_cast<uint32_t>(reinterpret_cast<const uint16_t&>(low)) |
         static_cast<uint32_t>(reinterpret_cast<const uint16_t&>(high)) << 16;
}

/// h of the rows [first, first + num_rows) of the tile, at most `tiles` tiles, as h[step][tile][lane]. All threads call it.
template <class T, int kWarps, bool kIsTensor>
__device__ void make_h(const LoraPrefillParams& p, const Shared& s, int slice, int first, int tiles,
                       int parts, HVector* h) {
  const int steps = num_steps(s.rank), quads = 4 * steps;  // of ranks
#pragma unroll 2
  for (int i = static_cast<int>(threadIdx.x); i < tiles * kTileRows * quads; i += kWarps * 32) {
    const int row = i / quads, rank = (i - row * quads) * 4;
    float4 v{0.0f, 0.0f, 0.0f, 0.0f};
    const int num = s.rank - rank;
    if (first + row < s.num_rows && num > 0) {
      const int at = s.first_row + first + row;
      if constexpr (kIsTensor) {
        v = load_tensor_h(p.site, p.plan.rows[at], rank, num);
      } else {
        v = load_h(p, slice, at, rank, parts);
        if (num < 2) v.y = 0.0f;
        if (num < 3) v.z = 0.0f;
        if (num < 4) v.w = 0.0f;
      }
    }
    const T hi[4] = {narrow<T>(v.x), narrow<T>(v.y), narrow<T>(v.z), narrow<T>(v.w)};
    const T lo[4] = {narrow<T>(v.x - widen(hi[0])), narrow<T>(v.y - widen(hi[1])),
                     narrow<T>(v.z - widen(hi[2])), narrow<T>(v.w - widen(hi[3]))};
    const int q = s.rank <= 16 ? rank / 4 : rank % 32 / 8;
    const int step = s.rank <= 16 ? 0 : rank / 32 * 2 + rank % 8 / 4;
    h[(step * tiles + row / kTileRows) * 32 + row % kTileRows * 4 + q] = {
        pack(hi[0], hi[1]), pack(hi[2], hi[3]), pack(lo[0], lo[1]), pack(lo[2], lo[3])};
  }
}

/// Weights of the 8 outputs 8 g + i of a lane for the ranks of a piece: 8 of 32, or 4 of 16.
struct Piece {
  uint4 v[kLaneOutputs];
};

template <bool kIsNarrow>
__device__ Piece load_piece(const Shared& s, int first_output, int width, int piece) {
  const int lane = threadIdx.x % 32, n = first_output + lane / 4 * kLaneOutputs;
  const bool is_narrow = kIsNarrow || s.rank <= 16;
  const int rank = is_narrow ? lane % 4 * 4 : piece * 32 + lane % 4 * 8;
  const bool is_there = n < width && rank < s.rank;
  const std::byte* from = s.b + n * s.b_stride + rank * 2;
  Piece b;
#pragma unroll
  for (int i = 0; i < kLaneOutputs; ++i) {
    b.v[i] = {0, 0, 0, 0};
    if (!is_there) continue;
    if (is_narrow) {
      const uint2 two = __ldg(reinterpret_cast<const uint2*>(from + i * s.b_stride));
      b.v[i].x = two.x, b.v[i].y = two.y;
    } else {
      b.v[i] = __ldg(reinterpret_cast<const uint4*>(from + i * s.b_stride));
    }
  }
  return b;
}

/// Of lane (g, q): sums of rows 2 q + j of a tile and outputs 8 g + 2 m + k in [m][2 k + j].
using Sums = float[4][4];

template <class T>
__device__ void multiply(const Piece& b, int step, const HVector& h, Sums& sum) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {  // hi, then lo
#pragma unroll
    for (int m = 0; m < 4; ++m) {
      const uint32_t a[4] = {word(b.v[2 * m], 2 * step), word(b.v[2 * m + 1], 2 * step),
                             word(b.v[2 * m], 2 * step + 1), word(b.v[2 * m + 1], 2 * step + 1)};
      mma_m16n8k16<T>(sum[m], a, half == 0 ? h.x : h.z, half == 0 ? h.y : h.w);
    }
  }
}

/// What the rows 2 q and 2 q + 1 of a tile hold at this lane's outputs.
struct Old {
  uint4 v[2];
};

/// The outputs of one warp in a round: those from `first` on, of rows of the tile.
struct Outputs {
  int n;          // first output of this lane
  bool is_there;  // there are such outputs
  bool accumulate;
  int num_rows;

  __device__ Outputs(const Shared& s, int first, int width, bool accumulate)
      : n(first + static_cast<int>(threadIdx.x % 32 / 4) * kLaneOutputs),
        is_there(n < width),
        accumulate(accumulate),
        num_rows(s.num_rows) {}

  [[nodiscard]] __device__ static int row_of(int tile, int j) {
    return tile * kTileRows + static_cast<int>(threadIdx.x % 4 * 2) + j;
  }
  [[nodiscard]] __device__ Old load(const Shared& s, int tile) const {
    Old old{};
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int row = row_of(tile, j);
      if (is_there && accumulate && row < num_rows) {
        old.v[j] = __ldcg(reinterpret_cast<const uint4*>(s.y[row] + n * 2));
      }
    }
    return old;
  }
  template <class T>
  __device__ void store(const Shared& s, int tile, const Old& old, const Sums& sum) const {
    struct alignas(16) Eight {
      T v[kLaneOutputs];
    };
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int row = row_of(tile, j);
      if (!is_there || row >= num_rows) continue;
      const float factor = s.factor[row];
      Eight eight = reinterpret_cast<const Eight&>(old.v[j]);
#pragma unroll
      for (int i = 0; i < kLaneOutputs; ++i) {
        const float delta = sum[i / 2][i % 2 * 2 + j];
        eight.v[i] =
            narrow<T>(accumulate ? __fmaf_rn(factor, delta, widen(eight.v[i])) : factor * delta);
      }
      __stcg(reinterpret_cast<uint4*>(s.y[row] + n * 2), reinterpret_cast<const uint4&>(eight));
    }
  }
};

/// Up to kPieces times 32 ranks, or 16: the weights of 64 outputs stay in registers for all rows, and outputs of kAhead tiles of
/// rows are on their way.
template <class T, bool kIsNarrow, int kPieces, int kAhead>
__device__ void run_held(const Shared& s, const HVector* h, int tiles, const Outputs& out,
                         int first_output, int width) {
  const int lane = threadIdx.x % 32, steps = kIsNarrow ? 1 : num_steps(s.rank);
  Old old[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) old[i] = out.load(s, i);
  Piece b[kPieces];
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    if (2 * i < steps) b[i] = load_piece<kIsNarrow>(s, first_output, width, i);
  }
#pragma unroll 1
  for (int base = 0; base < tiles; base += kAhead) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int tile = base + i;
      if (tile >= tiles) break;
      Sums sum = {};
#pragma unroll
      for (int step = 0; step < 2 * kPieces; ++step) {
        if (step >= steps) break;
        multiply<T>(b[step / 2], step % 2, h[(step * tiles + tile) * 32 + lane], sum);
      }
      out.store<T>(s, tile, old[i], sum);
      old[i] = out.load(s, tile + kAhead);
    }
  }
}

/// Any rank: tiles [first_tile, first_tile + tiles) of rows, kGroup at a time, for which the weights come piece by piece.
template <class T>
__device__ void run_long(const Shared& s, const HVector* h, int first_tile, int tiles,
                         const Outputs& out, int first_output, int width) {
  constexpr int kGroup = 4;
  const int lane = threadIdx.x % 32, steps = num_steps(s.rank);
#pragma unroll 1
  for (int base = 0; base < tiles; base += kGroup) {
    Old old[kGroup];
    Sums sum[kGroup] = {};
#pragma unroll
    for (int i = 0; i < kGroup; ++i) old[i] = out.load(s, first_tile + base + i);
    Piece next = load_piece<false>(s, first_output, width, 0);
#pragma unroll 1
    for (int step = 0; step < steps; step += 2) {
      const Piece b = next;
      if (step + 2 < steps) next = load_piece<false>(s, first_output, width, step / 2 + 1);
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        if (step + k >= steps) break;
#pragma unroll
        for (int i = 0; i < kGroup; ++i) {
          if (base + i >= tiles) break;
          multiply<T>(b, k, h[((step + k) * tiles + base + i) * 32 + lane], sum[i]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      if (base + i < tiles) out.store<T>(s, first_tile + base + i, old[i], sum[i]);
    }
  }
}

/// Warps of a block and blocks of a multiprocessor of the second kernel.
template <PrefillRanks kRanks>
constexpr int kWarpsOf = kRanks == PrefillRanks::kWide ? 4 : 8;
template <PrefillRanks kRanks>
constexpr int kBlocksOf = kRanks == PrefillRanks::kNarrow ? 2
                          : kRanks == PrefillRanks::kWide ? 3
                                                          : 1;

/// Asks for what the first loads of a round will need.
__device__ void prefetch(const Shared& s, const Outputs& out, int first_output, int width) {
  const int lane = threadIdx.x % 32;
  const auto ask = [](const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); };
  for (int i = lane; i < kWarpOutputs && first_output + i < width; i += 32) {
    ask(s.b + (first_output + i) * s.b_stride);
  }
  if (out.accumulate && lane < s.num_rows) ask(s.y[lane] + first_output * 2);
}

// y += factor * h B^T: a block takes a share of the rounds, which are row tiles times 512 outputs, and keeps h of the row tile in
// shared memory as hi + lo. Each warp has 64 outputs and all rows, and reads and writes y by itself, whole lines of
// 128 bytes. Grid: blocks that run at once.
template <class T, PrefillRanks kRanks, bool kIsTensor>
__global__ void __launch_bounds__(kWarpsOf<kRanks> * 32, kBlocksOf<kRanks>)
    prefill_expand_kernel(const __grid_constant__ LoraPrefillParams p) {
  constexpr int kWarps = kWarpsOf<kRanks>;
  extern __shared__ uint4 memory[];
  Shared& s = *reinterpret_cast<Shared*>(memory);
  HVector* const h = memory + kHeadBytes / sizeof(uint4);
  const int num_tiles = p.plan.head->num_tiles;
  const int total = num_tiles * p.rounds_per_tile;
  const int block = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x);
  const int each = total / blocks, more = total - each * blocks;
  const int begin = block * each + min(block, more), end = begin + each + (block < more);
  const int parts = kIsTensor ? 1 : StrandSplit(p, num_tiles).parts;
  int held_tile = -1, held_slice = -1;
  bool waits = !kIsTensor;
#pragma unroll 1
  for (int index = begin; index < end; ++index) {
    const Round<kWarps> round(p, index);
    const bool is_new = round.tile != held_tile || round.slice != held_slice;
    if (is_new) {
      __syncthreads();
      describe(p, round, s);
      __syncthreads();
    }
    if (s.rank == 0) {
      held_tile = -1;
      continue;
    }
    const int width = p.site.slices[round.slice].width;
    const int first = round.first + static_cast<int>(threadIdx.x / 32) * kWarpOutputs;
    const Outputs out(s, first, width, p.site.accumulate);
    if (first < width) prefetch(s, out, first, width);
    if (waits) wait_for_predecessor();
    waits = false;
    const int tiles = (s.num_rows + kTileRows - 1) / kTileRows;
    if constexpr (kRanks == PrefillRanks::kAny) {
      // Where h of all rows has no place, some rows come at a time.
      const int steps = num_steps(s.rank), fit = max(1, p.h_values / (16 * kTileRows * steps));
      for (int first_tile = 0; first_tile < tiles; first_tile += fit) {
        const int some = min(fit, tiles - first_tile);
        if (is_new || fit < tiles) {
          __syncthreads();
          make_h<T, kWarps, kIsTensor>(p, s, round.slice, first_tile * kTileRows, some, parts, h);
          __syncthreads();
        }
        if (first < width) run_long<T>(s, h, first_tile, some, out, first, width);
      }
    } else {
      constexpr bool kIsNarrow = kRanks == PrefillRanks::kNarrow;
      constexpr int kPieces = kIsNarrow ? 1 : 2, kAhead = kIsNarrow ? 4 : 3;
      if (is_new) {
        make_h<T, kWarps, kIsTensor>(p, s, round.slice, 0, tiles, parts, h);
        __syncthreads();
      }
      if (first < width) run_held<T, kIsNarrow, kPieces, kAhead>(s, h, tiles, out, first, width);
    }
    held_tile = round.tile, held_slice = round.slice;
  }
  if (waits) wait_for_predecessor();  // this kernel ends after the first one
}

template <class T, PrefillRanks kRanks, bool kIsTensor>
void run(const LoraPrefillParams& p, const LoraPrefillLaunch& launch) {
  constexpr auto kKernel = prefill_expand_kernel<T, kRanks, kIsTensor>;
  constexpr int kLimit = kRanks == PrefillRanks::kAny ? kLargeSharedBytes : kPortableSharedBytes;
  const int bytes = kHeadBytes + p.h_values * 4;
  allow_shared_memory<kKernel, kPortableSharedBytes, kLimit>(launch.device, bytes);
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(launch.config.expand_blocks));
  config.blockDim = dim3(kWarpsOf<kRanks> * 32);
  config.dynamicSmemBytes = static_cast<size_t>(bytes);
  config.stream = launch.stream;
  config.attrs = &early;
  config.numAttrs = !kIsTensor && launch.starts_early ? 1 : 0;
  HEDDLE_CUDA_CHECK(cudaLaunchKernelEx(&config, kKernel, p));
}

template <class T>
void run_any(const LoraPrefillParams& p, const LoraPrefillLaunch& launch) {
  using enum PrefillRanks;
  if (!p.has_a) return run<T, kAny, true>(p, launch);
  if (launch.config.ranks == kNarrow) return run<T, kNarrow, false>(p, launch);
  if (launch.config.ranks == kWide) return run<T, kWide, false>(p, launch);
  run<T, kAny, false>(p, launch);
}

}  // namespace

template <>
void launch_prefill_expand<bfloat16>(const LoraPrefillParams& p, const LoraPrefillLaunch& launch) {
  run_any<__nv_bfloat16>(p, launch);
}
template <>
void launch_prefill_expand<half>(const LoraPrefillParams& p, const LoraPrefillLaunch& launch) {
  run_any<__half>(p, launch);
}

}  // namespace heddle::cuda
