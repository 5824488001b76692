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

/// A block's shared memory: a work item, which is a row tile, up to 3 * kWarpTiles rank tiles of its adapter and some strands;
/// then sums that wait for those of the next strand; then steps of 64 features.
template <int kWarpTiles>
struct Shared {
  static constexpr int kRankTiles = kWarps / kMostGroups * kWarpTiles;
  static constexpr int kLines = kRowTileRows + kRankTiles * kLoraRankTile;
  static constexpr int kCopies = (kLines + kCopyLines - 1) / kCopyLines;  // of a thread in a step
  static constexpr int kLineBytes = kStep * 2;
  static constexpr int kWaitingBytes = kWarpTiles * 4 * int{sizeof(float4)} * kThreads;

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
  [[nodiscard]] __host__ __device__ static constexpr int bytes(int stages) {
    return head_bytes() + kWaitingBytes + stages * kLines * kLineBytes;
  }
  [[nodiscard]] __device__ std::byte* tail() {
    return reinterpret_cast<std::byte*>(this) + head_bytes();
  }
  /// Of this thread, kThreads apart.
  [[nodiscard]] __device__ float4* waiting() {
    return reinterpret_cast<float4*>(tail()) + threadIdx.x;
  }
  [[nodiscard]] __device__ uint4* stage(int i) {
    return reinterpret_cast<uint4*>(tail() + kWaitingBytes) + i * kLines * kLineVectors;
  }
};
static_assert(Shared<1>::bytes(3) <= 99 * 1024);
static_assert(Shared<1>::bytes(8) <= 227 * 1024 && Shared<2>::bytes(6) <= 227 * 1024 &&
              Shared<4>::bytes(3) <= 227 * 1024);

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
  int of_rows, of_ranks;  // vectors of a step: first line, vector q

  __device__ WarpPlace(int num_rows, int tiles) {
    const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
    const int groups = num_groups(num_rows);
    first_row = warp % groups * kGroupRows;
    first_tile = warp / groups * tiles;
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
    case 6: return wait_for_copies<4>();
    default: return wait_for_copies<1>();
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
    uint4 a[2][2];
#pragma unroll
    for (int block = 0; block < 2; ++block) {
      const uint4* from = &stage[place.of_ranks ^ 4 * block];
#pragma unroll
      for (int n = 0; n < 2; ++n) a[n][block] = from[(2 * r + n) * kEightLines];
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

template <int kWarpTiles, int kTiles>
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
          *reinterpret_cast<float2*>(to + 8 * n) = {v[2 * j], v[2 * j + 1]};
        }
      }
    }
  }
}

/// Writes the sums of a strand, or joins them first to those of the strand before, which wait in shared memory.
template <int kWarpTiles, int kTiles>
__device__ void join(const LoraPrefillParams& p, Shared<kWarpTiles>& s, const WarpPlace& place,
                     int strand, int subtree, Sums<kTiles>& sums) {
  float4* const waiting = s.waiting();
  auto* four = reinterpret_cast<float4*>(&sums);
  if (subtree == 2 && strand % 2 == 0) {
#pragma unroll
    for (int i = 0; i < kTiles * 4; ++i) waiting[i * kThreads] = four[i];
    return;
  }
  if (subtree == 2) {
#pragma unroll
    for (int i = 0; i < kTiles * 4; ++i) {
      const float4 v = waiting[i * kThreads];
      four[i] = {four[i].x + v.x, four[i].y + v.y, four[i].z + v.z, four[i].w + v.w};
    }
  }
  store_part(p, s, place, subtree == 2 ? strand / 2 : strand, sums);
}

/// The sums of the strands of an item, kTiles rank tiles a warp. -0 is where sums begin: it changes no bit of what is added to it.
template <class T, int kWarpTiles, bool kManyChunks, int kTiles>
__device__ void run_item(const LoraPrefillParams& p, Shared<kWarpTiles>& s, int first_strand,
                         int num_strands, int subtree) {
  const LoraParams& site = p.site;
  const int in_features = static_cast<int>(site.in_features), num_chunks = site.num_chunks;
  const WarpPlace place(s.num_rows, kTiles);
  const Copies<Shared<kWarpTiles>::kCopies> copies(
      s.lines, num_groups(s.num_rows) * kGroupRows + s.num_rank_tiles * kLoraRankTile);
  const bool has_work = place.first_row < s.num_rows && place.first_tile < s.num_rank_tiles;
  const uint32_t zero = static_cast<uint32_t>(s.num_rank_tiles) >> 31;
  Features ahead(first_strand, num_strands, num_chunks);
  uint4* to = s.stage(0);
  const uint4* from = to;
  const uint4* const last_stage = s.stage(p.stages - 1);
  constexpr int kStageVectors = Shared<kWarpTiles>::kLines * kLineVectors;
  const auto fetch_next = [&] {
    if (!ahead.is_done()) {
      copies.start(ahead.k, in_features, to);
      ahead.next(in_features, num_chunks);
    }
    commit_copies();
    to = to == last_stage ? s.stage(0) : to + kStageVectors;
  };
#pragma unroll 1
  for (int i = 0; i < p.stages - 1; ++i) fetch_next();

  Features at(first_strand, num_strands, num_chunks);
#pragma unroll 1
  for (int strand = first_strand; strand < first_strand + num_strands; ++strand) {
    Sums<kTiles> chunk, sums;
    chunk.fill(at.is_done() ? 0.0f : -0.0f);
    if constexpr (kManyChunks) sums.fill(-0.0f);
#pragma unroll 1
    while (!at.is_done() && at.strand == strand) {
      wait_for_stage(p.stages);
      __syncthreads();
      fetch_next();
      if (has_work) add_step<T, kTiles>(from, place, zero, chunk);
      from = from == last_stage ? s.stage(0) : from + kStageVectors;
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
    join(p, s, place, strand, subtree, chunk);
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
  const int bytes = Shared<kWarpTiles>::bytes(p.stages);
  allow_shared_memory<kKernel, kPortableSharedBytes, kLargeSharedBytes>(launch.device, bytes);
  kKernel<<<static_cast<unsigned>(p.shrink_blocks), kThreads, static_cast<size_t>(bytes),
            launch.stream>>>(p);
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
