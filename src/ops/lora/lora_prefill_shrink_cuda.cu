#include "cuda/check.h"
#include "cuda/shared_memory.h"

#include "ops/lora/lora_prefill_site_cuda.h"

namespace heddle::cuda {
namespace {

constexpr int kThreads = 384;
constexpr int kWarps = kThreads / 32;
constexpr int kStep = 64;                // features that are summed on tensor cores before f32 sums
constexpr int kLineVectors = kStep / 8;  // 16-byte vectors of a row of a step
constexpr int kCopyLines = kThreads / kLineVectors;  // lines that are copied at once
constexpr int kProductRows = 16;                     // rows of x of one product
constexpr int kGroupRows = 32;                       // rows of x of one warp
constexpr int kMostGroups = kRowTileRows / kGroupRows;
constexpr int kProducts = kStep / 16;  // along the features of a step
constexpr int kMostStages = 8;         // steps in shared memory

/// A block's shared memory: a work item, which is a row tile, up to 3 * kWarpTiles rank tiles of its adapter and some strands;
/// then as many steps of 64 features as fit.
template <int kWarpTiles>
struct Shared {
  static constexpr int kRankTiles = kWarps / kMostGroups * kWarpTiles;
  static constexpr int kLines = kRowTileRows + kRankTiles * kLoraRankTile;
  static constexpr int kCopies = (kLines + kCopyLines - 1) / kCopyLines;  // of a thread in a step
  static constexpr int kLineBytes = kStep * 2;

  LoraWeight a[kLoraMaxSlices];
  int32_t ranks[kLoraMaxSlices];
  int32_t first_row, num_rows;  // of the plan's order
  int32_t num_rank_tiles;       // 0: nothing to do
  int32_t columns[kRankTiles];  // of h, the first of each rank tile
  // Where feature 0 of the rows of x lies, of whole groups of rows, and then of the ranks of A; null: values there are not read.
  const std::byte* lines[kLines];

  [[nodiscard]] __host__ __device__ static constexpr int head_bytes() {
    return (static_cast<int>(sizeof(Shared)) + kLineBytes - 1) / kLineBytes * kLineBytes;
  }
  [[nodiscard]] __host__ __device__ static constexpr int num_stages(int lines) {
    const int fit = (kPortableSharedBytes - head_bytes()) / (lines * kLineBytes);
    return fit < kMostStages ? fit : kMostStages;
  }
  [[nodiscard]] __device__ uint4* stages() {
    return reinterpret_cast<uint4*>(reinterpret_cast<std::byte*>(this) + head_bytes());
  }
};
static_assert(Shared<1>::num_stages(Shared<1>::kLines) == 4);
static_assert(Shared<4>::num_stages(Shared<4>::kLines) == 2 && Shared<4>::num_stages(256) == 3);

/// Vector `index` of a row of a step: rows that lanes read together are in other banks.
__device__ int line_vector(int row, int index) {
  return row * kLineVectors + (index ^ row % 2 * (kLineVectors / 2));
}

/// Warps along the rows of an item.
__device__ int num_groups(int num_rows) {
  return num_rows <= kGroupRows ? 1 : num_rows <= 2 * kGroupRows ? 2 : kMostGroups;
}

/// Which rows and rank tiles of an item a warp has; lane (g, q) reads line g of eight, its vectors q and q + 4.
struct WarpPlace {
  int first_row;          // of kGroupRows
  int first_tile;         // of kTiles rank tiles
  int last_tile;          // of these, the last one that is there
  int of_rows, of_ranks;  // vectors of a step: first line, vector q

  __device__ WarpPlace(int num_rows, int num_rank_tiles, int tiles) {
    const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
    const int groups = num_groups(num_rows);
    first_row = warp % groups * kGroupRows;
    first_tile = warp / groups * tiles;
    last_tile = num_rank_tiles - 1 - first_tile;
    of_rows = line_vector(first_row + lane / 4, lane % 4);
    of_ranks = line_vector(groups * kGroupRows + first_tile * kLoraRankTile + lane / 4, lane % 4);
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
  const int first_rank_line = num_groups(tile.num_rows) * kGroupRows;
  if (t < site.num_slices) {
    const SlotWeights weights(p, tile, t);
    s.a[t] = weights.a;
    s.ranks[t] = weights.rank;
  }
  if (const int i = t - (kThreads - kRowTileRows); i >= 0 && i < first_rank_line) {
    const std::byte* line = nullptr;
    if (i < tile.num_rows) {
      const int64_t row = p.plan.rows[tile.first + i];
      line = static_cast<const std::byte*>(site.u) + row * site.u_stride * 2;
    }
    s.lines[i] = line;
  }
  __syncthreads();
  constexpr int kMost = Shared<kWarpTiles>::kRankTiles;
  int total = 0;
  for (int i = 0; i < site.num_slices; ++i) {
    total += (s.ranks[i] + kLoraRankTile - 1) / kLoraRankTile;
  }
  const int passes = (total + kMost - 1) / kMost;
  const int each = passes > 1 ? (total + passes - 1) / passes : total;
  const int num_rank_tiles = max(0, min(each, total - pass * each));
  if (t == 0) {
    s.first_row = tile.first;
    s.num_rows = tile.num_rows;
    s.num_rank_tiles = num_rank_tiles;
  }
  for (int i = t; i < Shared<kWarpTiles>::kLines - first_rank_line; i += kThreads) {
    const std::byte* line = nullptr;
    if (i < num_rank_tiles * kLoraRankTile) {
      int rank_tile = pass * each + i / kLoraRankTile, slice = 0;
      while (true) {
        const int of_slice = (s.ranks[slice] + kLoraRankTile - 1) / kLoraRankTile;
        if (rank_tile < of_slice) break;
        rank_tile -= of_slice;
        ++slice;
      }
      const int rank = rank_tile * kLoraRankTile + i % kLoraRankTile;
      const LoraWeight& a = s.a[slice];
      if (rank < s.ranks[slice]) {
        line = static_cast<const std::byte*>(a.data) + rank * a.row_stride * 2;
      }
      if (i % kLoraRankTile == 0) {
        s.columns[i / kLoraRankTile] = slice * p.slice_ranks + rank_tile * kLoraRankTile;
      }
    }
    s.lines[first_rank_line + i] = line;
  }
  __syncthreads();
}

/// The lines of an item of which this thread copies a vector in each step. Rows and ranks that are not there have sums, too,
/// of whatever lies in shared memory; nobody reads these.
template <int kCopies>
struct Copies {
  const std::byte* from[kCopies];
  unsigned present = 0;
  int feature, to;

  __device__ explicit Copies(const std::byte* const* lines, int num_lines)
      : feature(static_cast<int>(threadIdx.x % kLineVectors * 8)),
        to(line_vector(static_cast<int>(threadIdx.x / kLineVectors),
                       static_cast<int>(threadIdx.x % kLineVectors))) {
    static_assert(kCopyLines % 2 == 0);  // line_vector() of all is as far apart
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int line = i * kCopyLines + static_cast<int>(threadIdx.x / kLineVectors);
      from[i] = line < num_lines ? lines[line] : nullptr;
      if (from[i] == nullptr) continue;
      present |= 1u << i;
      from[i] += feature * 2;
    }
  }

  /// Starts copying the features [k, k + 64).
  __device__ void start(int k, int in_features, uint4* stage) const {
    const int bytes = k + feature < in_features ? 16 : 0;
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      if ((present & 1u << i) == 0) continue;
      copy_async_16(&stage[to + i * kCopyLines * kLineVectors], from[i] + k * 2, bytes);
    }
  }
};

/// Waits until at most stages - 2 groups of copies are open.
__device__ void wait_for_stage(int stages) {
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

/// Of lane (g, q) for 16 rows times 8 ranks: ranks 2 q and 2 q + 1 of row g, then of row g + 8.
template <int kTiles>
struct alignas(16) Sums {
  float v[kTiles][2][2][4];  // rank tile, 16 rows, 8 ranks

  __device__ void fill(float value) {
    for_each([&](float& sum, int) { sum = value; });
  }
  __device__ void add(const Sums& sums) {
    const float* from = &sums.v[0][0][0][0];
    for_each([&](float& sum, int i) { sum += from[i]; });
  }
  template <class F>
  __device__ void for_each(F&& f) {
#pragma unroll
    for (int i = 0; i < kTiles * 16; ++i) f((&v[0][0][0][0])[i], i);
  }
};

/// Adds the sum of 64 features to each sum. `zero` is 0.
template <class T, int kTiles>
__device__ void add_step(const uint4* stage, const WarpPlace& place, uint32_t zero,
                         Sums<kTiles>& sums) {
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
        // Not a copy, or else the compiler would copy again and again what products need in four registers in a row.
        uint32_t(&to)[4] = x[m][2 * block + j];
        to[0] = word(low, 2 * j) | zero, to[1] = word(high, 2 * j) | zero;
        to[2] = word(low, 2 * j + 1) | zero, to[3] = word(high, 2 * j + 1) | zero;
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kTiles; ++r) {
    // Beyond the last tile it is read again; nobody reads the sums.
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

/// Writes the sums of a strand, or adds them to those of the strand before, which this thread wrote.
template <bool kAdds, int kWarpTiles, int kTiles>
__device__ void store_part(const LoraPrefillParams& p, const Shared<kWarpTiles>& s,
                           const WarpPlace& place, int part, const Sums<kTiles>& sums) {
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

/// The sums of the strands of an item, kTiles rank tiles a warp. -0 is where sums begin: it changes no bit of what is added to it.
template <class T, int kWarpTiles, bool kManyChunks, int kTiles>
__device__ void run_item(const LoraPrefillParams& p, Shared<kWarpTiles>& s, int first_strand,
                         int num_strands, int subtree) {
  const LoraParams& site = p.site;
  const int in_features = static_cast<int>(site.in_features), num_chunks = site.num_chunks;
  const WarpPlace place(s.num_rows, s.num_rank_tiles, kTiles);
  const int num_lines = num_groups(s.num_rows) * kGroupRows + s.num_rank_tiles * kLoraRankTile;
  const int stages = Shared<kWarpTiles>::num_stages(num_lines);
  const Copies<Shared<kWarpTiles>::kCopies> copies(s.lines, num_lines);
  const bool has_work = place.first_row < s.num_rows && place.first_tile < s.num_rank_tiles;
  const uint32_t zero = static_cast<uint32_t>(s.num_rank_tiles) >> 31;
  Features ahead(first_strand, num_strands, num_chunks);
  uint4* to = s.stages();
  const uint4* from = to;
  const int stage_vectors = num_lines * kLineVectors;
  const uint4* const last_stage = to + (stages - 1) * stage_vectors;
  const auto fetch_next = [&] {
    if (!ahead.is_done()) {
      copies.start(ahead.k, in_features, to);
      ahead.next(in_features, num_chunks);
    }
    commit_copies();
    to = to == last_stage ? s.stages() : to + stage_vectors;
  };
#pragma unroll 1
  for (int i = 0; i < stages - 1; ++i) fetch_next();

  Features at(first_strand, num_strands, num_chunks);
#pragma unroll 1
  for (int strand = first_strand; strand < first_strand + num_strands; ++strand) {
    Sums<kTiles> chunk, sums;
    chunk.fill(at.is_done() ? 0.0f : -0.0f);
    if constexpr (kManyChunks) sums.fill(-0.0f);
#pragma unroll 1
    while (!at.is_done() && at.strand == strand) {
      wait_for_stage(stages);
      __syncthreads();
      fetch_next();
      if (has_work) add_step<T, kTiles>(from, place, zero, chunk);
      from = from == last_stage ? s.stages() : from + stage_vectors;
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
    if (subtree == 2 && strand % 2 == 1) {
      store_part<true>(p, s, place, strand / 2, chunk);
    } else {
      store_part<false>(p, s, place, strand / subtree, chunk);
    }
  }
  wait_for_copies<0>();
}

/// The same with as few rank tiles a warp as the item's need.
template <class T, int kWarpTiles, bool kManyChunks, int kTiles = kWarpTiles>
__device__ void run_any_item(const LoraPrefillParams& p, Shared<kWarpTiles>& s, int first_strand,
                             int num_strands, int subtree) {
  if constexpr (kTiles > 1) {
    if (s.num_rank_tiles <= kWarps / num_groups(s.num_rows) * (kTiles - 1)) {
      return run_any_item<T, kWarpTiles, kManyChunks, kTiles - 1>(p, s, first_strand, num_strands,
                                                                  subtree);
    }
  }
  run_item<T, kWarpTiles, kManyChunks, kTiles>(p, s, first_strand, num_strands, subtree);
}

// Sums of h = A x: a block takes work items of up to 128 rows of one adapter, 48 * kWarpTiles ranks and some strands; of these, a
// warp has 32 rows and kWarpTiles rank tiles. A ring of steps of 64 features runs ahead. Grid: blocks that run at once.
template <class T, int kWarpTiles, bool kManyChunks>
__global__ void __launch_bounds__(kThreads, 1)
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
    if (s.num_rank_tiles > 0) {
      run_any_item<T, kWarpTiles, kManyChunks>(p, s, part * num_strands, num_strands,
                                               split.subtree);
    }
    __syncthreads();
  }
}

template <class T, int kWarpTiles, bool kManyChunks>
void run(const LoraPrefillParams& p, const LoraPrefillLaunch& launch) {
  constexpr auto kKernel = prefill_shrink_kernel<T, kWarpTiles, kManyChunks>;
  constexpr int kBytes = kPortableSharedBytes;
  allow_shared_memory<kKernel, kBytes>(launch.device);
  kKernel<<<static_cast<unsigned>(p.shrink_blocks), kThreads, kBytes, launch.stream>>>(p);
  HEDDLE_CUDA_CHECK(cudaGetLastError());
}

template <class T>
void run_any(const LoraPrefillParams& p, const LoraPrefillLaunch& launch) {
  switch (launch.config.shrink_tiles) {
    case 1: return run<T, 1, true>(p, launch);
    case 2: return run<T, 2, true>(p, launch);
    default: return run<T, 4, false>(p, launch);
  }
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
