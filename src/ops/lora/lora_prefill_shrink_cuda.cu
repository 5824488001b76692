#include "cuda/check.h"
#include "cuda/shared_memory.h"

#include "ops/lora/lora_prefill_site_cuda.h"

namespace heddle::cuda {
namespace {

constexpr int kStep = 64;                // features that are summed on tensor cores before f32 sums
constexpr int kLineVectors = kStep / 8;  // 16-byte vectors of a row of a step
constexpr int kGroupRows = 32;           // rows of x of one warp
constexpr int kGroupTiles = kGroupRows / kTileRows;

/// A work item: a row tile, up to 2 * kWarpTiles rank tiles of its adapter, and some strands.
template <int kWarpTiles>
struct ItemOf {
  static constexpr int kRankTiles = 2 * kWarpTiles;
  int32_t first_row, num_rows;  // of the plan's order
  int32_t num_rank_tiles;       // 0: nothing to do
  int32_t columns[kRankTiles];  // of h, the first of each rank tile
  // Where feature 0 of the rows of x and then of the ranks of A lies; null: zeros.
  const std::byte* lines[kRowTileRows + kRankTiles * kLoraRankTile];
};

struct SlotRanks {
  LoraWeight a[kLoraMaxSlices];
  int32_t ranks[kLoraMaxSlices];
};

template <int kWarpTiles>
struct Shared {
  SlotRanks slot;
  ItemOf<kWarpTiles> item;
  static constexpr int kLines = kRowTileRows + ItemOf<kWarpTiles>::kRankTiles * kLoraRankTile;
  static constexpr int kStageVectors = kLines * kLineVectors;

  static constexpr int kLineBytes = kStep * 2;

  [[nodiscard]] __host__ __device__ static constexpr int head_bytes() {
    return (static_cast<int>(sizeof(Shared)) + kLineBytes - 1) / kLineBytes * kLineBytes;
  }
  [[nodiscard]] __host__ __device__ static constexpr int bytes(int stages) {
    return head_bytes() + stages * kLines * kLineBytes;
  }
  [[nodiscard]] __device__ uint4* stage(int i) {
    return reinterpret_cast<uint4*>(reinterpret_cast<std::byte*>(this) + head_bytes()) +
           i * kStageVectors;
  }
};
static_assert(Shared<2>::bytes(4) <= 99 * 1024 && Shared<4>::bytes(3) <= 99 * 1024);
static_assert(Shared<2>::bytes(8) <= 227 * 1024 && Shared<4>::bytes(6) <= 227 * 1024);

/// Which rows and rank tiles of an item a warp has.
struct WarpPlace {
  int first_row;             // of kGroupRows
  int rank_tile, rank_step;  // rank tiles rank_tile + i * rank_step

  __device__ explicit WarpPlace(int num_rows) {
    const int warp = static_cast<int>(threadIdx.x / 32);
    const int groups = num_rows <= kGroupRows ? 1 : num_rows <= 2 * kGroupRows ? 2 : 4;
    first_row = warp % groups * kGroupRows;
    rank_tile = warp / groups;
    rank_step = kLoraWarps / groups;
  }
};

/// The features of some strands: chunks of a strand in ascending order, one strand after the other.
struct Features {
  int strand, end;  // strands
  int chunk, k;

  __device__ Features(int first, int count, int num_chunks)
      : strand(first), end(min(first + count, num_chunks)), chunk(first), k(first * kLoraChunk) {}
  [[nodiscard]] __device__ bool is_done() const { return strand >= end; }
  __device__ void next(int in_features, int num_chunks) {
    k += kStep;
    if (k % kLoraChunk != 0 && k < in_features) return;
    chunk += kLoraStrands;
    if (chunk >= num_chunks) chunk = ++strand;
    k = chunk * kLoraChunk;
  }
};

template <int kWarpTiles>
__device__ void describe(const LoraPrefillParams& p, Shared<kWarpTiles>& s, int tile_index,
                         int pass) {
  const LoraParams& site = p.site;
  const LoraRowTile tile = p.plan.tiles[tile_index];
  const int t = static_cast<int>(threadIdx.x);
  if (t < site.num_slices) {
    const SlotWeights weights(p, tile, t);
    s.slot.a[t] = weights.a;
    s.slot.ranks[t] = weights.rank;
  }
  __syncthreads();
  ItemOf<kWarpTiles>& item = s.item;
  constexpr int kMost = ItemOf<kWarpTiles>::kRankTiles;
  int total = 0;
  for (int i = 0; i < site.num_slices; ++i) {
    total += (s.slot.ranks[i] + kLoraRankTile - 1) / kLoraRankTile;
  }
  const int passes = (total + kMost - 1) / kMost;
  const int each = passes > 0 ? (total + passes - 1) / passes : 0;
  const int num_rank_tiles = max(0, min(each, total - pass * each));
  if (t == 0) {
    item.first_row = tile.first;
    item.num_rows = tile.num_rows;
    item.num_rank_tiles = num_rank_tiles;
  }
  for (int i = t; i < kRowTileRows; i += kLoraThreads) {
    const std::byte* line = nullptr;
    if (i < tile.num_rows) {
      const int64_t row = p.plan.rows[tile.first + i];
      line = static_cast<const std::byte*>(site.u) + row * site.u_stride * 2;
    }
    item.lines[i] = line;
  }
  for (int i = t; i < num_rank_tiles * kLoraRankTile; i += kLoraThreads) {
    int rank_tile = pass * each + i / kLoraRankTile, slice = 0;
    while (true) {
      const int of_slice = (s.slot.ranks[slice] + kLoraRankTile - 1) / kLoraRankTile;
      if (rank_tile < of_slice) break;
      rank_tile -= of_slice;
      ++slice;
    }
    const int rank = rank_tile * kLoraRankTile + i % kLoraRankTile;
    const LoraWeight& a = s.slot.a[slice];
    item.lines[kRowTileRows + i] =
        rank < s.slot.ranks[slice] ? static_cast<const std::byte*>(a.data) + rank * a.row_stride * 2
                                   : nullptr;
    if (i % kLoraRankTile == 0) {
      item.columns[i / kLoraRankTile] = slice * p.slice_ranks + rank_tile * kLoraRankTile;
    }
  }
  __syncthreads();
}

/// Vector `index` of a row of a step: rows that lanes read together are in other banks.
__device__ int line_vector(int row, int index) {
  return row * kLineVectors + (index ^ row % 2 * (kLineVectors / 2));
}

/// Starts copying the features [k, k + 64) of all lines of an item.
template <int kWarpTiles>
__device__ void fetch(const LoraParams& site, const ItemOf<kWarpTiles>& item, int k, uint4* stage) {
  constexpr int kRows = kLoraThreads / kLineVectors;  // copied at once
  const int index = static_cast<int>(threadIdx.x % kLineVectors);
  const int row = static_cast<int>(threadIdx.x / kLineVectors);
  const int feature = k + index * 8;
  const bool is_feature = feature < site.in_features;
  const auto copy = [&](int line) {
    const std::byte* from = item.lines[line];
    const bool is_there = is_feature && from != nullptr;
    copy_async_16(&stage[line_vector(line, index)],
                  is_there ? from + feature * 2 : static_cast<const std::byte*>(site.u),
                  is_there ? 16 : 0);
  };
#pragma unroll
  for (int i = 0; i < kRowTileRows; i += kRows) {
    if (i < item.num_rows) copy(i + row);
  }
#pragma unroll
  for (int i = 0; i < ItemOf<kWarpTiles>::kRankTiles * kLoraRankTile; i += kRows) {
    if (i + row < item.num_rank_tiles * kLoraRankTile) copy(kRowTileRows + i + row);
  }
}

/// Waits until at most stages - 2 groups of copies are open.
__device__ void wait_for_stage(int stages) {
  switch (stages) {
    case 8: return wait_for_copies<6>();
    case 6: return wait_for_copies<4>();
    case 4: return wait_for_copies<2>();
    default: return wait_for_copies<1>();
  }
}

/// Of lane (g, q): ranks g (values 0 and 1) and g + 8 of a rank tile, rows 2 q and 2 q + 1 of a tile of rows.
template <int kWarpTiles>
using Sums = float[kWarpTiles][kGroupTiles][4];

template <int kWarpTiles>
__device__ void fill(Sums<kWarpTiles>& sums, float value) {
#pragma unroll
  for (auto& tiles : sums) {
#pragma unroll
    for (auto& tile : tiles) {
#pragma unroll
      for (float& v : tile) v = value;
    }
  }
}
template <int kWarpTiles>
__device__ void add(Sums<kWarpTiles>& to, const Sums<kWarpTiles>& sums) {
#pragma unroll
  for (int r = 0; r < kWarpTiles; ++r) {
#pragma unroll
    for (int n = 0; n < kGroupTiles; ++n) {
#pragma unroll
      for (int v = 0; v < 4; ++v) to[r][n][v] += sums[r][n][v];
    }
  }
}

/// Adds the sum of 64 features to each sum.
template <class T, int kWarpTiles>
__device__ void add_step(const uint4* stage, const WarpPlace& place, int num_rank_tiles,
                         Sums<kWarpTiles>& sums) {
  const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  uint4 x[kGroupTiles][2];
#pragma unroll
  for (int n = 0; n < kGroupTiles; ++n) {
#pragma unroll
    for (int block = 0; block < 2; ++block) {
      x[n][block] = stage[line_vector(place.first_row + n * kTileRows + g, 4 * block + q)];
    }
  }
#pragma unroll
  for (int r = 0; r < kWarpTiles; ++r) {
    const int tile = place.rank_tile + r * place.rank_step;
    if (tile >= num_rank_tiles) break;
    const int line = kRowTileRows + tile * kLoraRankTile + g;
    float sum[kGroupTiles][4] = {};
#pragma unroll
    for (int block = 0; block < 2; ++block) {
      const uint4 low = stage[line_vector(line, 4 * block + q)];
      const uint4 high = stage[line_vector(line + 8, 4 * block + q)];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const uint32_t a[4] = {word(low, 2 * j), word(high, 2 * j), word(low, 2 * j + 1),
                               word(high, 2 * j + 1)};
#pragma unroll
        for (int n = 0; n < kGroupTiles; ++n) {
          mma_m16n8k16<T>(sum[n], a, word(x[n][block], 2 * j), word(x[n][block], 2 * j + 1));
        }
      }
    }
#pragma unroll
    for (int n = 0; n < kGroupTiles; ++n) {
#pragma unroll
      for (int v = 0; v < 4; ++v) sums[r][n][v] += sum[n][v];
    }
  }
}

/// Writes the sums of a subtree, or adds what was written before.
template <int kWarpTiles>
__device__ void store_part(const LoraPrefillParams& p, const ItemOf<kWarpTiles>& item,
                           const WarpPlace& place, int part, bool adds,
                           const Sums<kWarpTiles>& sums) {
  const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  float* const first = p.partials + part * p.part_stride + g;
#pragma unroll
  for (int r = 0; r < kWarpTiles; ++r) {
    const int tile = place.rank_tile + r * place.rank_step;
    if (tile >= item.num_rank_tiles) break;
    const int column = item.columns[tile];
#pragma unroll
    for (int n = 0; n < kGroupTiles; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int row = place.first_row + n * kTileRows + 2 * q + j;
        if (row >= item.num_rows) continue;
        float* to = first + int64_t{item.first_row + row} * p.h_width + column;
        to[0] = adds ? to[0] + sums[r][n][j] : sums[r][n][j];
        to[8] = adds ? to[8] + sums[r][n][2 + j] : sums[r][n][2 + j];
      }
    }
  }
}

/// Joins the sums of strands that come one after the other to those of subtrees of 1, 2 or 4, each pair as soon as it is
/// there. `waiting` is the strand before; the first pair of four waits in the place of the result.
template <int kWarpTiles>
__device__ void join(const LoraPrefillParams& p, const ItemOf<kWarpTiles>& item,
                     const WarpPlace& place, int strand, int subtree, Sums<kWarpTiles>& waiting,
                     Sums<kWarpTiles>& sums) {
  const int at = strand % subtree;
  if (subtree > 1 && at % 2 == 0) {
    fill<kWarpTiles>(waiting, -0.0f);
    return add<kWarpTiles>(waiting, sums);
  }
  if (subtree > 1) add<kWarpTiles>(sums, waiting);
  store_part<kWarpTiles>(p, item, place, strand / subtree, at == 3, sums);
}

/// The sums of the strands of an item. -0 is where sums begin: it changes no bit of what is added to it.
template <class T, int kWarpTiles, bool kManyChunks>
__device__ void run_item(const LoraPrefillParams& p, Shared<kWarpTiles>& s, int first_strand,
                         int num_strands, int subtree) {
  const LoraParams& site = p.site;
  const auto& item = s.item;
  const int in_features = static_cast<int>(site.in_features), num_chunks = site.num_chunks;
  const WarpPlace place(item.num_rows);
  Features ahead(first_strand, num_strands, num_chunks);
  int to = 0, from = 0;
  const auto fetch_next = [&] {
    if (!ahead.is_done()) {
      fetch<kWarpTiles>(site, item, ahead.k, s.stage(to));
      ahead.next(in_features, num_chunks);
    }
    commit_copies();
    to = to == p.stages - 1 ? 0 : to + 1;
  };
#pragma unroll 1
  for (int i = 0; i < p.stages - 1; ++i) fetch_next();

  Sums<kWarpTiles> waiting;
  Features at(first_strand, num_strands, num_chunks);
#pragma unroll 1
  for (int strand = first_strand; strand < first_strand + num_strands; ++strand) {
    Sums<kWarpTiles> chunk, sums;
    fill<kWarpTiles>(chunk, at.is_done() ? 0.0f : -0.0f);
    if constexpr (kManyChunks) fill<kWarpTiles>(sums, -0.0f);
#pragma unroll 1
    while (!at.is_done() && at.strand == strand) {
      wait_for_stage(p.stages);
      __syncthreads();
      fetch_next();
      add_step<T, kWarpTiles>(s.stage(from), place, item.num_rank_tiles, chunk);
      from = from == p.stages - 1 ? 0 : from + 1;
      const int last = at.chunk;
      at.next(in_features, num_chunks);
      if constexpr (kManyChunks) {
        if (at.chunk != last) {
          add<kWarpTiles>(sums, chunk);
          fill<kWarpTiles>(chunk, -0.0f);
        }
      }
    }
    if constexpr (kManyChunks) {
      add<kWarpTiles>(chunk, sums);
    }
    join<kWarpTiles>(p, item, place, strand, subtree, waiting, chunk);
  }
  wait_for_copies<0>();
}

// Sums of h = A x: a block takes work items of up to 128 rows of one adapter, 32 * kWarpTiles ranks and some strands; of these, a
// warp has 32 rows and kWarpTiles rank tiles. A ring of steps of 64 features runs ahead. Grid: blocks that run at once.
template <class T, int kWarpTiles, bool kManyChunks>
__global__ void __launch_bounds__(kLoraThreads, 1)
    prefill_shrink_kernel(const __grid_constant__ LoraPrefillParams p) {
  extern __shared__ uint4 memory[];
  auto& s = *reinterpret_cast<Shared<kWarpTiles>*>(memory);
  trigger_dependents();
  const int num_tiles = p.plan.head->num_tiles;
  const StrandSplit split(p, num_tiles);
  const int num_strands = kLoraStrands / split.split;
  const int num_items = num_tiles * p.max_passes * split.split;
#pragma unroll 1
  for (int index = static_cast<int>(blockIdx.x); index < num_items;
       index += static_cast<int>(gridDim.x)) {
    const int unit = index / split.split, part = index - unit * split.split;
    const int tile = unit / p.max_passes;
    describe<kWarpTiles>(p, s, tile, unit - tile * p.max_passes);
    if (s.item.num_rank_tiles > 0) {
      run_item<T, kWarpTiles, kManyChunks>(p, s, part * num_strands, num_strands, split.subtree);
    }
    __syncthreads();
  }
}

template <class T, int kWarpTiles, bool kManyChunks>
void run(const LoraPrefillParams& p, const LoraPrefillLaunch& launch) {
  constexpr auto kKernel = prefill_shrink_kernel<T, kWarpTiles, kManyChunks>;
  const int bytes = Shared<kWarpTiles>::bytes(p.stages);
  allow_shared_memory<kKernel, kPortableSharedBytes, kLargeSharedBytes>(launch.device, bytes);
  kKernel<<<static_cast<unsigned>(p.shrink_blocks), kLoraThreads, static_cast<size_t>(bytes),
            launch.stream>>>(p);
  HEDDLE_CUDA_CHECK(cudaGetLastError());
}

template <class T>
void run_any(const LoraPrefillParams& p, const LoraPrefillLaunch& launch) {
  launch.config.shrink_tiles == 2 ? run<T, 2, true>(p, launch) : run<T, 4, false>(p, launch);
}

}  // namespace

template <>
void launch_prefill_shrink<bfloat16>(const LoraPrefillParams& p, const LoraPrefillLaunch& launch) {
  run_any<__nv_bfloat16>(p, launch);
}
template <>
void launch_prefill_shrink<half>(const LoraPrefillParams& p, const LoraPrefillLaunch& launch) {
  run_any<__half>(p, launch);
}

}  // namespace heddle::cuda
