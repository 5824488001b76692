#include "cuda/check.h"
#include "cuda/convert_cuda.h"
#include "cuda/shared_memory.h"

#include "ops/lora/lora_prefill_site_cuda.h"

namespace heddle::cuda {
namespace {

constexpr int kLaneOutputs = 8;  // of a row and a group of outputs: 16 bytes of y
constexpr int kGroupOutputs = 32;
constexpr int kGroups = kWarpOutputs / kGroupOutputs;
constexpr int kProductRows = 16;                          // rows of h of one product
constexpr int kProductOutputs = 8;                        // of one product
constexpr int kColumns = kWarpOutputs / kProductOutputs;  // products along the outputs of a warp
constexpr int kAhead = 4;  // tiles of rows whose outputs are on their way

/// Of lane (g, q) for 16 ranks and a tile of 16 rows: two and two ranks of row g are x and z, of row g + 8 y and w.
using HVector = uint4;
constexpr int kHTileVectors = 2 * 32;  // hi of all lanes, then lo

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

/// h of the rows [first, first + 16 * tiles) of the tile, as h[step][tile][hi or lo][lane]. All threads call it.
template <class T, int kWarps, bool kIsTensor>
__device__ void make_h(const LoraPrefillParams& p, const Shared& s, int slice, int first, int tiles,
                       int parts, HVector* h) {
  const int steps = num_steps(s.rank), quads = 4 * steps;  // of ranks
#pragma unroll 2
  for (int i = static_cast<int>(threadIdx.x); i < tiles * kProductRows * quads; i += kWarps * 32) {
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
    const int tile = row / kProductRows, lane = row % 8 * 4 + q;
    auto* to = reinterpret_cast<uint32_t*>(h + (step * tiles + tile) * kHTileVectors + lane) +
               row % kProductRows / 8;
    to[0] = pack(hi[0], hi[1]), to[2] = pack(hi[2], hi[3]);
    to += 32 * 4;
    to[0] = pack(lo[0], lo[1]), to[2] = pack(lo[2], lo[3]);
  }
}

/// Output of a warp that lane group g has in column i: so each lane has sums of outputs that lie one behind the other.
__device__ int output_of(int i, int g) {
  return i / 4 * kGroupOutputs + g / 2 * kLaneOutputs + i % 4 * 2 + g % 2;
}

/// Weights of a lane for kSteps steps of 16 ranks.
template <int kSteps>
struct Weights {
  uint2 v[kColumns][kSteps];

  /// All ranks of an adapter with up to 16, or 32 of one with more.
  template <bool kIsNarrow>
  __device__ void load(const Shared& s, int first_output, int width, int first_rank, int to) {
    const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    const bool is_narrow = kIsNarrow || s.rank <= 16;
    const int rank = is_narrow ? q * 4 : first_rank + q * 8;
    const std::byte* const from = s.b + (first_output + output_of(0, g)) * s.b_stride + rank * 2;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      const bool is_there = rank < s.rank && first_output + output_of(i, g) < width;
      const std::byte* at = from + output_of(i, 0) * s.b_stride;
      uint4 x{0, 0, 0, 0};
      if (is_narrow) {
        const uint2 two = is_there ? __ldg(reinterpret_cast<const uint2*>(at)) : uint2{0, 0};
        x.x = two.x, x.y = two.y;
      } else if (is_there) {
        x = __ldg(reinterpret_cast<const uint4*>(at));
      }
      v[i][to] = {x.x, x.y};
      if constexpr (kSteps > 1) v[i][to + 1] = {x.z, x.w};
    }
  }
};

/// Of lane (g, q): row g of a tile and outputs 2 q + [0, 2) of a column, then row g + 8.
using Sums = float[kColumns][4];

template <class T, int kSteps>
__device__ void multiply(const HVector* h, const Weights<kSteps>& b, int step, Sums& sum) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {  // hi, then lo
    const HVector x = h[half * 32 + lane];
    const uint32_t a[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      mma_m16n8k16<T>(sum[i], a, b.v[i][step].x, b.v[i][step].y);
    }
  }
}

/// The 64 outputs of one warp in a round, of all rows of the tile. Lane (g, q) has outputs 8 q + [0, 8) of either group of the
/// rows g and g + 8 of 16.
struct Outputs {
  int n;  // first output of this lane
  int width;
  bool accumulate;
  int num_rows;

  __device__ Outputs(const Shared& s, int first, int width, bool accumulate)
      : n(first + static_cast<int>(threadIdx.x % 4) * kLaneOutputs),
        width(width),
        accumulate(accumulate),
        num_rows(s.num_rows) {}

  /// Calls f(i, factor, vector) for each vector of y that this lane has of a tile.
  template <class F>
  __device__ void for_each(const Shared& s, int tile, F&& f) const {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int row = tile * kProductRows + 8 * j + static_cast<int>(threadIdx.x % 32 / 4);
      if (row >= num_rows) continue;
      std::byte* const y = s.y[row] + n * 2;
      const float factor = s.factor[row];
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        if (n + group * kGroupOutputs >= width) continue;
        f(j * kGroups + group, factor, reinterpret_cast<uint4*>(y + group * kGroupOutputs * 2));
      }
    }
  }

  /// Starts copying what a tile holds to old[i][lane].
  __device__ void fetch(const Shared& s, int tile, uint4* old) const {
    if (!accumulate) return;
    for_each(s, tile, [&](int i, float, const uint4* y) {
      copy_async_16(&old[i * 32 + static_cast<int>(threadIdx.x % 32)], y, 16);
    });
  }

  /// Writes a tile; `old(i)` is what it held.
  template <class T, class GetOld>
  __device__ void store(const Shared& s, int tile, const Sums& sum, GetOld&& old) const {
    struct alignas(16) Eight {
      T v[kLaneOutputs];
    };
    for_each(s, tile, [&](int i, float factor, uint4* y) {
      const auto delta = [&](int k) {
        return sum[i % kGroups * 4 + k / 2][i / kGroups * 2 + k % 2];
      };
      Eight eight;
      if (accumulate) {
        const uint4 raw = old(i);
        const Eight& held = reinterpret_cast<const Eight&>(raw);
#pragma unroll
        for (int k = 0; k < kLaneOutputs; ++k) {
          eight.v[k] = narrow<T>(__fmaf_rn(factor, delta(k), widen(held.v[k])));
        }
      } else {
#pragma unroll
        for (int k = 0; k < kLaneOutputs; ++k) eight.v[k] = narrow<T>(factor * delta(k));
      }
      __stcs(y, reinterpret_cast<const uint4&>(eight));
    });
  }
};
constexpr int kOldVectors = kGroups * 2 * 32;  // of a tile and a warp

/// Up to 16 * kSteps ranks: the weights of 64 outputs stay in registers for all rows, and a ring in shared memory takes what tiles of
/// rows hold. start() needs nothing of the kernel before.
template <class T, int kSteps>
struct HeldRound {
  Weights<kSteps> b;
  Outputs out;
  uint4* old;  // of this warp, [kAhead][kOldVectors]

  __device__ HeldRound(const Shared& s, const Outputs& out, int first_output, uint4* old)
      : out(out), old(old) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      out.fetch(s, i, &old[i * kOldVectors]);
      commit_copies();
    }
    b.template load<kSteps == 1>(s, first_output, out.width, 0, 0);
    if constexpr (kSteps > 2) {
#pragma unroll
      for (int i = 2; i < kSteps; i += 2) {
        b.template load<false>(s, first_output, out.width, 16 * i, i);
      }
    }
  }

  __device__ void run(const Shared& s, const HVector* h, int tiles) const {
    const int lane = threadIdx.x % 32, steps = num_steps(s.rank);
    uint4* slot = old;
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
      Sums sum = {};
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        if (step >= steps) break;
        multiply<T>(h + (step * tiles + tile) * kHTileVectors, b, step, sum);
      }
      wait_for_copies<kAhead - 1>();
      out.store<T>(s, tile, sum, [&](int i) { return slot[i * 32 + lane]; });
      out.fetch(s, tile + kAhead, slot);
      commit_copies();
      slot = slot == old + (kAhead - 1) * kOldVectors ? old : slot + kOldVectors;
    }
  }
};

/// Any rank: tiles [first_tile, first_tile + tiles) of rows, kGroup at a time, for which the weights come piece by piece.
template <class T>
__device__ void run_long(const Shared& s, const HVector* h, int first_tile, int tiles,
                         const Outputs& out, int first_output) {
  constexpr int kGroup = 2;
  const int steps = num_steps(s.rank);
#pragma unroll 1
  for (int base = 0; base < tiles; base += kGroup) {
    uint4 old[kGroup][kGroups * 2];
    Sums sum[kGroup] = {};
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      if (!out.accumulate || base + i >= tiles) continue;
      out.for_each(s, first_tile + base + i,
                   [&](int at, float, const uint4* y) { old[i][at] = __ldcs(y); });
    }
    Weights<2> next;
    next.load<false>(s, first_output, out.width, 0, 0);
#pragma unroll 1
    for (int step = 0; step < steps; step += 2) {
      const Weights<2> b = next;
      if (step + 2 < steps) next.load<false>(s, first_output, out.width, step * 16 + 32, 0);
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        if (step + k >= steps) break;
#pragma unroll
        for (int i = 0; i < kGroup; ++i) {
          if (base + i >= tiles) break;
          multiply<T>(h + ((step + k) * tiles + base + i) * kHTileVectors, b, k, sum[i]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      if (base + i >= tiles) continue;
      out.store<T>(s, first_tile + base + i, sum[i], [&](int at) { return old[i][at]; });
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

/// Tiles of rows whose outputs a block keeps in shared memory.
template <PrefillRanks kRanks>
constexpr int kOldBytesOf =
    kRanks == PrefillRanks::kAny ? 0 : kWarpsOf<kRanks>* kAhead* kOldVectors* int{sizeof(uint4)};

// y += factor * h B^T: a block takes a share of the rounds, which are row tiles times 512 outputs, and keeps h of the row tile in
// shared memory as hi + lo. Each warp has 64 outputs and all rows, and reads and writes y by itself, whole lines of
// 128 bytes. Grid: blocks that run at once.
template <class T, PrefillRanks kRanks, bool kIsTensor>
__global__ void __launch_bounds__(kWarpsOf<kRanks> * 32, kBlocksOf<kRanks>)
    prefill_expand_kernel(const __grid_constant__ LoraPrefillParams p) {
  constexpr int kWarps = kWarpsOf<kRanks>;
  extern __shared__ uint4 memory[];
  Shared& s = *reinterpret_cast<Shared*>(memory);
  uint4* const old =
      memory + kHeadBytes / sizeof(uint4) + threadIdx.x / 32 * (kAhead * kOldVectors);
  HVector* const h = memory + (kHeadBytes + kOldBytesOf<kRanks>) / sizeof(uint4);
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
    const int tiles = (s.num_rows + kProductRows - 1) / kProductRows;
    const auto wait = [&] {
      if (waits) wait_for_predecessor();
      waits = false;
    };
    if constexpr (kRanks == PrefillRanks::kAny) {
      wait();
      // Where h of all rows has no place, some rows come at a time.
      const int steps = num_steps(s.rank), fit = max(1, p.h_values / (16 * kProductRows * steps));
      for (int first_tile = 0; first_tile < tiles; first_tile += fit) {
        const int some = min(fit, tiles - first_tile);
        if (is_new || fit < tiles) {
          __syncthreads();
          make_h<T, kWarps, kIsTensor>(p, s, round.slice, first_tile * kProductRows, some, parts,
                                       h);
          __syncthreads();
        }
        if (first < width) run_long<T>(s, h, first_tile, some, out, first);
      }
    } else {
      constexpr int kSteps = kRanks == PrefillRanks::kNarrow ? 1 : 4;
      const HeldRound<T, kSteps> held(s, out, first, old);
      wait();
      if (is_new) {
        make_h<T, kWarps, kIsTensor>(p, s, round.slice, 0, tiles, parts, h);
        __syncthreads();
      }
      if (first < width) held.run(s, h, tiles);
    }
    held_tile = round.tile, held_slice = round.slice;
  }
  if (waits) wait_for_predecessor();  // this kernel ends after the first one
}

template <class T, PrefillRanks kRanks, bool kIsTensor>
void run(const LoraPrefillParams& p, const LoraPrefillLaunch& launch) {
  constexpr auto kKernel = prefill_expand_kernel<T, kRanks, kIsTensor>;
  const int bytes = kHeadBytes + kOldBytesOf<kRanks> + p.h_values * 4;
  allow_shared_memory<kKernel, kPortableSharedBytes>(launch.device);
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
