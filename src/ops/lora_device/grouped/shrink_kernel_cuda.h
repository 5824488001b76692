#pragma once

#include "cuda/mma_cuda.h"
#include "cuda/shared_memory.h"

#include "ops/lora_device/grouped/launch_cuda.h"
#include "ops/lora_device/grouped/shrink_item_cuda.h"

namespace heddle::cuda::lora::grouped_shrink {

// Shrink of the grouped route. It comes in three forms with the same bits, which differ in how they
// copy and in what they do with shared memory.

/// For every chip: the ring takes all of the 99 KB, and the sums of two chains are added in global
/// memory.
struct PortableForm {
  static constexpr int kSharedBytes = kPortableSharedBytes;
  static constexpr bool kSumsWait =
      false;  // sums of a chain wait in shared memory for the next chain
  template <int kCopies>
  using LineCopies = Copies<kCopies>;
};
/// For every chip, any alignment and layout.
struct GeneralForm : PortableForm {
  template <int kCopies>
  using LineCopies = GeneralCopies<kCopies>;
};
/// For 9.0: 227 KB are enough for a longer ring and for the sums of a chain that wait.
struct Sm90Form {
  static constexpr int kSharedBytes = kLargeSharedBytes;
  static constexpr bool kSumsWait = true;
  template <int kCopies>
  using LineCopies = Copies<kCopies>;
};

/// Bytes of the sums of a block that wait, where a part has two chains and a warp kTiles rank
/// tiles.
template <class Form, int kTiles>
[[nodiscard]] __host__ __device__ constexpr int waiting_bytes(int subtree) {
  return Form::kSumsWait && subtree == 2 ? kTiles * 4 * int{sizeof(float4)} * kThreads : 0;
}

/// Stages of so many lines in shared memory.
template <class Form, int kWarpTiles, int kTiles = kWarpTiles>
[[nodiscard]] __host__ __device__ constexpr int num_stages(int lines, int subtree) {
  using LineCopies = typename Form::template LineCopies<GroupedShared<kWarpTiles>::kCopies>;
  static_assert(GroupedShared<kWarpTiles>::kLines % kLineVectors ==
                0);  // a ninth vector for each line is whole lines
  return GroupedShared<kWarpTiles>::num_stages(
      Form::kSharedBytes - waiting_bytes<Form, kTiles>(subtree),
      lines * LineCopies::kStageVectors / kLineVectors);
}
static_assert(num_stages<PortableForm, 1>(GroupedShared<1>::kLines, 2) == 4);
static_assert(num_stages<PortableForm, 2>(GroupedShared<2>::kLines, 2) == 3);
static_assert(num_stages<PortableForm, 4>(GroupedShared<4>::kLines, 2) == 2);
static_assert(num_stages<Sm90Form, 1>(GroupedShared<1>::kLines, 2) == 8);
static_assert(num_stages<Sm90Form, 2>(GroupedShared<2>::kLines, 2) == 6);
static_assert(num_stages<Sm90Form, 4>(GroupedShared<4>::kLines, 2) == 3);
static_assert(num_stages<Sm90Form, 4>(GroupedShared<4>::kLines, 1) == 5);

constexpr int kSplits = 4;  // ways to cut the chains: into 1, 2, 4 or 8 items
static_assert(1 << (kSplits - 1) == kChains);
// The last row tile that a speculative start may read: a plan of so many rows has place for it,
// whether or not there are as many row tiles.
constexpr int kLastSpeculativeTile = int{kShortBatchRows};

/// Waits until the oldest stage has arrived: at most stages - 2 groups of copies are open.
__device__ inline void wait_for_stage(int stages) {
  switch (stages) {
    case 8: return wait_for_copies<6>();
    case 7: return wait_for_copies<5>();
    case 6: return wait_for_copies<4>();
    case 5: return wait_for_copies<3>();
    case 4: return wait_for_copies<2>();
    case 3: return wait_for_copies<1>();
    default: return wait_for_copies<0>();
  }
}

/// The sums of a lane. The last four are those of a product of 16 rows and 8 ranks: ranks 2 q and 2
/// q + 1 of row g, then of row g + 8.
template <int kTiles>
struct alignas(16) ShrinkSums {
  float v[kTiles][2][2][4];  // [rank tile][16 rows][8 ranks][4]

  __device__ void fill(float value) {
    for_each([&](float& sum, int) { sum = value; });
  }
  __device__ void add(const ShrinkSums& sums) {
    const float* from = &sums.v[0][0][0][0];
    for_each([&](float& sum, int i) { sum += from[i]; });
  }
  template <class F>
  __device__ void for_each(F&& f) {
#pragma unroll
    for (int i = 0; i < kTiles * 16; ++i) f((&v[0][0][0][0])[i], i);
  }
};

/// Adds the products of a step, summed over its 64 features, to each sum. `zero` is 0, but the
/// compiler does not know it.
template <class T, int kTiles>
__device__ void add_step(const uint4* stage, const WarpPlace& place, uint32_t zero,
                         ShrinkSums<kTiles>& sums) {
  constexpr int kEightLines = 8 * kLineVectors;
  uint32_t x[2][kProducts][4];
#pragma unroll
  for (int block = 0; block < 2; ++block) {
    const uint4* from = &stage[place.of_rows ^ 4 * block];
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      const uint4 low = from[2 * m * kEightLines], high = from[(2 * m + 1) * kEightLines];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        // With `| zero` this is no copy. The products need four registers in a row, and the
        // compiler would copy again and again for each product.
        uint32_t(&to)[4] = x[m][2 * block + j];
        to[0] = word(low, 2 * j) | zero, to[1] = word(high, 2 * j) | zero;
        to[2] = word(low, 2 * j + 1) | zero, to[3] = word(high, 2 * j + 1) | zero;
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kTiles; ++r) {
    // After the last rank tile that exists, that one is multiplied again. Nothing reads those sums.
    const int tile = r == 0 ? 0 : min(r, place.last_tile);
    uint4 a[2][2];
#pragma unroll
    for (int block = 0; block < 2; ++block) {
      const uint4* from = &stage[place.of_ranks ^ 4 * block] + 2 * tile * kEightLines;
#pragma unroll
      for (int n = 0; n < 2; ++n) a[n][block] = from[n * kEightLines];
    }
    float sum[2][2][4] = {};
#pragma unroll
    for (int k = 0; k < kProducts; ++k) {
#pragma unroll
      for (int m = 0; m < 2; ++m) {
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          const uint4& b = a[n][k / 2];
          mma_m16n8k16<T>(sum[m][n], x[m][k], word(b, k % 2 * 2), word(b, k % 2 * 2 + 1));
        }
      }
    }
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int v = 0; v < 4; ++v) sums.v[r][m][n][v] += sum[m][n][v];
      }
    }
  }
}

/// Writes the sums of a part, or adds them to what this thread has written there.
template <bool kAdds, int kWarpTiles, int kTiles>
__device__ void store_part(const GroupedParams& p, const GroupedShared<kWarpTiles>& s,
                           const WarpPlace& place, int part, const ShrinkSums<kTiles>& sums) {
  const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  float* const first = p.partials + part * p.part_stride + 2 * q;
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int row = place.first_row + m * kProductRows + 8 * j + g;
      if (row >= s.num_rows) continue;
      float* const of_row = first + int64_t{s.first_row + row} * p.h_width;
#pragma unroll
      for (int r = 0; r < kTiles; ++r) {
        const int tile = place.first_tile + r;
        if (tile >= s.num_rank_tiles) break;
        float* const to = of_row + s.columns[tile];
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          const float(&v)[4] = sums.v[r][m][n];
          float2 sum{v[2 * j], v[2 * j + 1]};
          if constexpr (kAdds) {
            const float2 before = __ldcg(reinterpret_cast<const float2*>(to + 8 * n));
            sum = {before.x + sum.x, before.y + sum.y};
          }
          __stcg(reinterpret_cast<float2*>(to + 8 * n), sum);
        }
      }
    }
  }
}

/// Writes the sums of a chain. In a part of two chains, the second one adds those of the first.
template <class Form, int kWarpTiles, int kTiles>
__device__ void finish_chain(const GroupedParams& p, GroupedShared<kWarpTiles>& s,
                             const WarpPlace& place, int chain, int subtree,
                             ShrinkSums<kTiles>& sums) {
  const bool is_second = subtree == 2 && chain % 2 == 1;
  if constexpr (Form::kSumsWait) {
    auto* const waiting = reinterpret_cast<float4*>(s.tail()) + threadIdx.x;
    auto* const four = reinterpret_cast<float4*>(&sums);
    if (subtree == 2 && !is_second) {
#pragma unroll
      for (int i = 0; i < kTiles * 4; ++i) waiting[i * kThreads] = four[i];
      return;
    }
    if (is_second) {
#pragma unroll
      for (int i = 0; i < kTiles * 4; ++i) {
        const float4 v = waiting[i * kThreads];
        four[i] = {v.x + four[i].x, v.y + four[i].y, v.z + four[i].z, v.w + four[i].w};
      }
    }
  } else if (is_second) {
    return store_part<true>(p, s, place, chain / 2, sums);
  }
  store_part<false>(p, s, place, chain / subtree, sums);
}

/// Computes an item: the sums of its chains, with kTiles rank tiles a warp. Sums begin with -0,
/// which changes no bit of what is added to it.
template <class Form, class T, int kWarpTiles, bool kManyChunks, int kTiles>
__device__ void run_item(const GroupedParams& p, GroupedShared<kWarpTiles>& s, int first_chain,
                         int num_chains, int subtree) {
  const SiteParams& site = p.site;
  const int in_features = static_cast<int>(site.in_features), num_chunks = site.num_chunks;
  const WarpPlace place(s.num_rows, s.num_rank_tiles, kTiles);
  const int num_lines = num_groups(s.num_rows) * kGroupRows + s.num_rank_tiles * kTileRanks;
  const int stages = num_stages<Form, kWarpTiles, kTiles>(num_lines, subtree);
  using LineCopies = typename Form::template LineCopies<GroupedShared<kWarpTiles>::kCopies>;
  const LineCopies copies(p, s, num_lines);
  const bool has_work = place.first_row < s.num_rows && place.first_tile < s.num_rank_tiles;
  const uint32_t zero = static_cast<uint32_t>(s.num_rank_tiles) >> 31;
  Features ahead(first_chain, num_chains, num_chunks);
  auto* const first_stage =
      reinterpret_cast<uint4*>(s.tail() + waiting_bytes<Form, kTiles>(subtree));
  uint4* to = first_stage;
  uint4* from = to;
  const int stage_vectors = num_lines * LineCopies::kStageVectors;
  uint4* const last_stage = to + (stages - 1) * stage_vectors;
  const auto fetch_next = [&] {
    if (!ahead.is_done()) {
      copies.start(ahead.k, in_features, to);
      ahead.next(in_features, num_chunks);
    }
    commit_copies();
    to = to == last_stage ? first_stage : to + stage_vectors;
  };
#pragma unroll 1
  for (int i = 0; i < stages - 1; ++i) fetch_next();

  Features at(first_chain, num_chains, num_chunks);
#pragma unroll 1
  for (int chain = first_chain; chain < first_chain + num_chains; ++chain) {
    ShrinkSums<kTiles> chunk, sums;
    chunk.fill(at.is_done() ? 0.0f : -0.0f);
    if constexpr (kManyChunks) sums.fill(-0.0f);
#pragma unroll 1
    while (!at.is_done() && at.chain == chain) {
      wait_for_stage(stages);
      copies.arrive(from);
      __syncthreads();
      fetch_next();
      if (has_work) add_step<T, kTiles>(from, place, zero, chunk);
      from = from == last_stage ? first_stage : from + stage_vectors;
      const int last = at.chunk;
      at.next(in_features, num_chunks);
      if constexpr (kManyChunks) {
        if (at.chunk != last) {
          sums.add(chunk);
          chunk.fill(-0.0f);
        }
      }
    }
    if constexpr (kManyChunks) chunk.add(sums);
    finish_chain<Form>(p, s, place, chain, subtree, chunk);
  }
  wait_for_copies<0>();
}

/// Computes an item with as few rank tiles a warp as it needs.
template <class Form, class T, int kWarpTiles, bool kManyChunks, int kTiles = kWarpTiles>
__device__ void run_one_of(const GroupedParams& p, GroupedShared<kWarpTiles>& s, int first_chain,
                           int num_chains, int subtree) {
  if constexpr (kTiles > 1) {
    if (s.num_rank_tiles <= kWarps / num_groups(s.num_rows) * (kTiles - 1)) {
      return run_one_of<Form, T, kWarpTiles, kManyChunks, kTiles - 1>(p, s, first_chain, num_chains,
                                                                      subtree);
    }
  }
  run_item<Form, T, kWarpTiles, kManyChunks, kTiles>(p, s, first_chain, num_chains, subtree);
}

/// Says of all rows that they have no adapter; join says which they have.
__device__ inline void clear_row_adapters(const GroupedParams& p) {
  const int64_t count = int64_t{p.site.num_rows} * p.site.num_slices;
  for (int64_t i = blockIdx.x * kThreads + threadIdx.x; i < count; i += gridDim.x * kThreads) {
    p.row_adapters[i] = {kNoAdapter, 0, 0, 0.0f};
  }
}

// Partial sums of h = A x.
//
//   block   work items of up to 128 rows of one adapter x 48 * kWarpTiles ranks x 1 to 8 chains;
//           copies of the next steps run ahead in a ring
//   warp    32 rows x 16 * kWarpTiles ranks
//   lane    of each product of 16 rows, 8 ranks and 16 features: the rows g and g + 8, rank g of A,
//           the features of column q; sums of ranks 2 q and 2 q + 1
//
// Grid: blocks that run at the same time. They take items in turn.
template <class Form, class T, int kWarpTiles, bool kManyChunks>
__global__ void __launch_bounds__(kThreads, 1)
    grouped_shrink_kernel(const __grid_constant__ GroupedParams p) {
  extern __shared__ uint4 memory[];
  auto& s = *reinterpret_cast<GroupedShared<kWarpTiles>*>(memory);
  // In this order: expand begins to read y before it waits, and by then the kernels before
  // this one must have ended.
  wait_for_predecessor();
  trigger_dependents();
  if (p.row_adapters != nullptr) clear_row_adapters(p);
  const int first = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x);
  // Which row tile comes first depends on how the chains are cut, and that on the number of row
  // tiles. A speculative start loads one for each way to cut, together with that number.
  GroupedTile speculative_tiles[kSplits];
#pragma unroll
  for (int i = 0; i < kSplits; ++i) {
    speculative_tiles[i] = p.plan.tiles[min(first / (p.max_passes << i), kLastSpeculativeTile)];
  }
  const int num_tiles = GroupedHead(p).num_tiles;
  const ChainSplit split(p, num_tiles);
  const int num_chains = kChains / split.split;
  const int num_items = num_tiles * p.max_passes * split.split;
  GroupedTile tile = speculative_tiles[0];
#pragma unroll
  for (int i = 1; i < kSplits; ++i) {
    if (split.split == 1 << i) tile = speculative_tiles[i];
  }
#pragma unroll 1
  for (int index = first; index < num_items; index += blocks) {
    const int tile_pass = index / split.split, part = index - tile_pass * split.split;
    const int tile_index = tile_pass / p.max_passes;
    if (index != first || tile_index > kLastSpeculativeTile) tile = p.plan.tiles[tile_index];
    describe<kWarpTiles>(p, s, tile, tile_pass - tile_index * p.max_passes);
    if (s.num_rank_tiles > 0) {
      run_one_of<Form, T, kWarpTiles, kManyChunks>(p, s, part * num_chains, num_chains,
                                                   split.subtree);
    }
    __syncthreads();
  }
}

template <class Form, class T, int kWarpTiles, bool kManyChunks>
void run(const GroupedParams& p, const GroupedLaunch& launch) {
  constexpr auto kKernel = grouped_shrink_kernel<Form, T, kWarpTiles, kManyChunks>;
  constexpr int kBytes = Form::kSharedBytes;
  allow_shared_memory<kKernel, kPortableSharedBytes, kBytes>(launch.device, kBytes);
  launch_part<kKernel>(p, launch, p.shrink_blocks, kThreads, kBytes, true);
}

/// Launches the kernel of a form. T: dtype of the weights.
template <class Form, class T>
void launch_instance(const GroupedParams& p, const GroupedLaunch& launch) {
  switch (launch.config.shrink_tiles) {
    case 1: return run<Form, T, 1, true>(p, launch);
    case 2: return run<Form, T, 2, true>(p, launch);
    default: return run<Form, T, 4, false>(p, launch);
  }
}

}  // namespace heddle::cuda::lora::grouped_shrink
