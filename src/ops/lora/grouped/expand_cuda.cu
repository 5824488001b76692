#include "cuda/shared_memory.h"

#include "core/math.h"
#include "ops/lora_device/grouped/launch_cuda.h"
#include "ops/lora_device/grouped/row_tile_h_cuda.h"

namespace heddle::cuda::lora {
namespace {

template <GroupedRanks kRanks>
constexpr ExpandForm kForm = expand_form(kRanks);

constexpr int kAhead = 4;  // tiles of 16 rows whose y is on its way from memory

/// The outputs of a warp in an output tile. Of 16 rows lane (g, q) has the outputs 8 q + [0, 8) of
/// each group of 32, in the rows g and g + 8: vector j * kGroups + group is of row g + 8 j.
template <class T, int kColumns>
struct Outputs {
  static constexpr int kGroups = kColumns * kProductOutputs / kGroupOutputs;
  static constexpr int kVectors = kGroups * 2;        // of a lane in 16 rows
  static constexpr int kWarpVectors = kVectors * 32;  // old[vector][lane]

  int offset;  // bytes from output 0 of a row to the first vector of this lane
  int groups;  // that exist
  int num_rows;
  bool accumulate;

  __device__ Outputs(const ExpandShared& s, int first, int width, bool accumulate)
      : num_rows(s.num_rows), accumulate(accumulate) {
    const int n = first + static_cast<int>(threadIdx.x % 4) * kLaneOutputs;
    offset = n * 2;
    groups = max(0, ceil_div(width - n, kGroupOutputs));
  }
  __device__ static int row_of(int tile, int j) {
    return tile * kProductRows + 8 * j + static_cast<int>(threadIdx.x % 32 / 4);
  }
  /// Calls f(vector, address) for each vector of y that this lane has of 16 rows.
  template <class F>
  __device__ void for_each(const ExpandShared& s, int tile, F&& f) const {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int row = row_of(tile, j);
      std::byte* const y = s.y[min(row, kGroupedTileRows - 1)] + offset;
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        if (row < num_rows && group < groups) {
          f(j * kGroups + group, reinterpret_cast<uint4*>(y + group * kGroupOutputs * 2));
        }
      }
    }
  }

  /// Fills in what stands for y where it is overwritten.
  __device__ void clear(uint4* old) const {
    if (accumulate) return;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      old[i * 32] = {kNothing, kNothing, kNothing, kNothing};
    }
  }
  /// Starts to copy what 16 rows of y hold.
  __device__ void fetch(const ExpandShared& s, int tile, uint4* old) const {
    if (!accumulate) return;
    for_each(s, tile, [&](int i, const uint4* y) { copy_async_16(&old[i * 32], y, 16); });
  }

  /// Writes 16 rows. old(i): what vector i held.
  template <class GetOld>
  __device__ void store(const ExpandShared& s, int tile, const Sums<kColumns>& sum,
                        GetOld&& old) const {
    uint4 result[kVectors];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float factor = s.factor[row_of(tile, j)];
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        const uint4 before = old(j * kGroups + group);
        const auto two = [&](int i) {
          const float(&delta)[4] = sum[group * 4 + i];
          return add_rounded<T>(word(before, i), factor, delta[2 * j], delta[2 * j + 1]);
        };
        result[j * kGroups + group] = {two(0), two(1), two(2), two(3)};
      }
    }
    for_each(s, tile, [&](int i, uint4* y) { __stcg(y, result[i]); });
  }
};

/// Up to 16 * kSteps ranks: B of a warp's outputs stays in registers for all rows, and y runs ahead
/// in a ring in shared memory. The constructor needs nothing that shrink writes, so it runs before
/// shrink has ended.
template <class T, int kSteps, int kColumns>
struct CachedTile {
  using Out = Outputs<T, kColumns>;
  Weights<kSteps, kColumns> b;
  Out out;
  uint4* old;  // of this lane, [kAhead][Out::kVectors][32]

  __device__ CachedTile(const ExpandShared& s, const Out& out, int first_output, int width,
                        uint4* old)
      : out(out), old(old) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      out.clear(&old[i * Out::kWarpVectors]);
      out.fetch(s, i, &old[i * Out::kWarpVectors]);
      commit_copies();
    }
    load_weights<kSteps == 1>(b, s, first_output, width, 0, 0);
    if constexpr (kSteps > 2) {
#pragma unroll
      for (int i = 2; i < kSteps; i += 2) load_weights<false>(b, s, first_output, width, 16 * i, i);
    }
  }

  __device__ void run(const ExpandShared& s, const HVector* h, int tiles) const {
    const int steps = num_steps(s.rank);
    const uint4* const last = old + (kAhead - 1) * Out::kWarpVectors;
    uint4* slot = old;
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
      Sums<kColumns> sum = {};
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        if (step >= steps) break;
        multiply<T>(HPair(h + step * kHTileVectors), b, step, sum);
      }
      h += steps * kHTileVectors;
      wait_for_copies<kAhead - 1>();
      out.store(s, tile, sum, [&](int i) { return slot[i * 32]; });
      out.fetch(s, tile + kAhead, slot);
      commit_copies();
      slot = slot == last ? old : slot + Out::kWarpVectors;
    }
  }
};

/// Any rank: B does not fit registers. It is loaded 32 ranks at a time, for kGroup tiles of 16
/// rows, of the tiles [first_tile, first_tile + tiles).
template <class T, int kColumns>
__device__ void run_long(const ExpandShared& s, const HVector* h, int first_tile, int tiles,
                         const Outputs<T, kColumns>& out, int first_output, int width) {
  constexpr int kGroup = 2, kVectors = Outputs<T, kColumns>::kVectors;
  const int steps = num_steps(s.rank);
#pragma unroll 1
  for (int base = 0; base < tiles; base += kGroup) {
    uint4 old[kGroup][kVectors];
    Sums<kColumns> sum[kGroup] = {};
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
#pragma unroll
      for (uint4& v : old[i]) v = {kNothing, kNothing, kNothing, kNothing};
      if (!out.accumulate || base + i >= tiles) continue;
      out.for_each(s, first_tile + base + i,
                   [&](int at, const uint4* y) { old[i][at] = __ldcs(y); });
    }
    Weights<2, kColumns> next;
    load_weights<false>(next, s, first_output, width, 0, 0);
#pragma unroll 1
    for (int step = 0; step < steps; step += 2) {
      const Weights<2, kColumns> b = next;
      if (step + 2 < steps) load_weights<false>(next, s, first_output, width, step * 16 + 32, 0);
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        if (step + k >= steps) break;
#pragma unroll
        for (int i = 0; i < kGroup; ++i) {
          if (base + i >= tiles) break;
          multiply<T>(HPair(h + threadIdx.x % 32 + ((base + i) * steps + step + k) * kHTileVectors),
                      b, k, sum[i]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      if (base + i >= tiles) continue;
      out.store(s, first_tile + base + i, sum[i], [&](int at) { return old[i][at]; });
    }
  }
}

template <GroupedRanks kRanks>
constexpr int kColumnsOf = kForm<kRanks>.warp_outputs / kProductOutputs;

/// Steps of 16 ranks whose B a warp has in registers.
template <GroupedRanks kRanks>
constexpr int kCachedSteps = kRanks == GroupedRanks::kUpTo16 ? 1 : 4;

/// Shared memory behind the head, where B stays in registers: [tile][step][hi or lo][lane] of h,
/// then the ring of y of each warp, [kAhead][vector][lane].
template <GroupedRanks kRanks>
constexpr int kCachedVectors = kCachedSteps<kRanks>* kGroupedTileRows / kProductRows* kHTileVectors;
template <GroupedRanks kRanks>
constexpr int kOldVectors = kAhead* kForm<kRanks>.warp_outputs* kProductRows * 2 / 16;

template <GroupedRanks kRanks>
int shared_bytes(int h_values) {
  if constexpr (kRanks == GroupedRanks::kUpTo512) return kHeadBytes + h_values * 4;
  return kHeadBytes +
         (kCachedVectors<kRanks> + kForm<kRanks>.warps * kOldVectors<kRanks>)*int{sizeof(uint4)};
}

// y (+)= factor * h B^T.
//
//   block   output tiles of up to 128 rows of one adapter x 256 or 512 outputs; h of the rows in
//           shared memory as hi and lo, kept as long as the row tile and slice stay the same
//   warp    all rows x 32 or 64 outputs; B in registers, y in pieces of 64 bytes or more of a row
//   lane    of each 16 rows: the rows g and g + 8, eight outputs in a row of each group of 32
//
// kIsTensor: h is a tensor (lora_expand). Grid: blocks that run at the same time, with consecutive
// tiles.
template <class T, GroupedRanks kRanks, bool kIsTensor>
__global__ void __launch_bounds__(kForm<kRanks>.warps * 32, kForm<kRanks>.blocks)
    grouped_expand_kernel(const __grid_constant__ GroupedParams p) {
  constexpr int kWarps = kForm<kRanks>.warps, kColumns = kColumnsOf<kRanks>;
  extern __shared__ uint4 memory[];
  auto& s = *reinterpret_cast<ExpandShared*>(memory);
  HVector* const h = memory + kHeadBytes / sizeof(uint4);
  trigger_dependents();
  const GroupedHead plan(p);
  const int num_tiles = plan.num_tiles;
  const int total = num_tiles * p.output_tiles_per_row_tile;
  const int block = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x);
  const int each = total / blocks, more = total - each * blocks;
  const int begin = block * each + min(block, more), end = begin + each + (block < more);
  const int parts = kIsTensor ? 1 : ChainSplit(p, num_tiles).parts;
  int cached_tile = -1, cached_slice = -1;
  bool waits = !kIsTensor;
#pragma unroll 1
  for (int index = begin; index < end; ++index) {
    const OutputTile output_tile(p, index, kWarps * kForm<kRanks>.warp_outputs);
    const bool is_new = output_tile.tile != cached_tile || output_tile.slice != cached_slice;
    if (is_new) {
      __syncthreads();
      describe<kWarps * 32>(p, output_tile, int{sizeof(T)}, s);
      __syncthreads();
    }
    if (s.rank == 0) {
      cached_tile = -1;
      continue;
    }
    const int width = p.site.slices[output_tile.slice].width;
    const int first =
        output_tile.first + static_cast<int>(threadIdx.x / 32) * kForm<kRanks>.warp_outputs;
    const Outputs<T, kColumns> out(s, first, width, p.site.accumulate);
    const int tiles = ceil_div(s.num_rows, kProductRows);
    const auto wait = [&] {
      if (waits) wait_for_predecessor();
      waits = false;
    };
    if constexpr (kRanks == GroupedRanks::kUpTo512) {
      wait();
      // Where h of all rows does not fit, some rows come at a time.
      const int steps = num_steps(s.rank), fit = max(1, p.h_values / (16 * kProductRows * steps));
      for (int first_tile = 0; first_tile < tiles; first_tile += fit) {
        const int some = min(fit, tiles - first_tile);
        if (is_new || fit < tiles) {
          __syncthreads();
          make_h<T, kWarps, kIsTensor>(p, s, output_tile.slice, first_tile * kProductRows, some,
                                       parts, h);
          __syncthreads();
        }
        if (first < width) run_long<T>(s, h, first_tile, some, out, first, width);
      }
    } else {
      constexpr int kSteps = kCachedSteps<kRanks>;
      uint4* const old =
          h + kCachedVectors<kRanks> + threadIdx.x / 32 * kOldVectors<kRanks> + threadIdx.x % 32;
      const CachedTile<T, kSteps, kColumns> cached(s, out, first, width, old);
      wait();
      if (is_new) {
        make_h<T, kWarps, kIsTensor>(p, s, output_tile.slice, 0, tiles, parts, h);
        __syncthreads();
      }
      if (first < width) cached.run(s, h + threadIdx.x % 32, tiles);
    }
    cached_tile = output_tile.tile, cached_slice = output_tile.slice;
  }
  if (waits) wait_for_predecessor();  // shall not end before shrink does
  plan.refuse_if_foreign(p);
}

template <class T, GroupedRanks kRanks, bool kIsTensor>
void run(const GroupedParams& p, const GroupedLaunch& launch) {
  constexpr auto kKernel = grouped_expand_kernel<T, kRanks, kIsTensor>;
  const int bytes = shared_bytes<kRanks>(p.h_values);
  allow_shared_memory<kKernel, kPortableSharedBytes>(launch.device);
  launch_part<kKernel>(p, launch, launch.config.expand_blocks, kForm<kRanks>.warps * 32, bytes,
                       !kIsTensor);
}

template <class T>
void launch_instance(const GroupedParams& p, const GroupedLaunch& launch) {
  using enum GroupedRanks;
  if (!p.has_a) return run<T, kUpTo512, true>(p, launch);
  if (launch.config.ranks == kUpTo16) return run<T, kUpTo16, false>(p, launch);
  if (launch.config.ranks == kUpTo64) return run<T, kUpTo64, false>(p, launch);
  run<T, kUpTo512, false>(p, launch);
}

}  // namespace

template <>
void launch_grouped_expand<bfloat16>(const GroupedParams& p, const GroupedLaunch& launch) {
  launch_instance<__nv_bfloat16>(p, launch);
}
template <>
void launch_grouped_expand<half>(const GroupedParams& p, const GroupedLaunch& launch) {
  launch_instance<__half>(p, launch);
}

}  // namespace heddle::cuda::lora
