#pragma once

#include "ops/lora/grouped/row_tiles_cuda.h"

namespace heddle::cuda::lora::grouped_shrink {

// Of the first kernel for batches of many rows: its work items, and how they come into shared memory.

inline constexpr int kThreads = 384;
inline constexpr int kWarps = kThreads / 32;
inline constexpr int kStep = 64;  // features that are summed on tensor cores before f32 sums
inline constexpr int kLineVectors = kStep / 8;              // 16-byte vectors of a row of a step
inline constexpr int kCopyLines = kThreads / kLineVectors;  // lines that are copied at once
inline constexpr int kProductRows = 16;                     // rows of x of one product
inline constexpr int kGroupRows = 32;                       // rows of x of one warp
inline constexpr int kMaxGroups = kGroupedTileRows / kGroupRows;
inline constexpr int kProducts = kStep / 16;  // along the features of a step
inline constexpr int kMaxStages = 8;          // steps in shared memory

/// Begins a block's shared memory: a work item, which is a row tile, up to 3 * kWarpTiles rank tiles of its adapter and some
/// chains. Behind it come sums that wait for others, if any, and then steps of 64 features.
template <int kWarpTiles>
struct Shared {
  static constexpr int kRankTiles = kWarps / kMaxGroups * kWarpTiles;
  static constexpr int kLines = kGroupedTileRows + kRankTiles * kTileRanks;
  static constexpr int kCopies = (kLines + kCopyLines - 1) / kCopyLines;  // of a thread in a step
  static constexpr int kLineBytes = kStep * 2;

  LoraWeight a[kMaxSlices];
  int32_t ranks[kMaxSlices];
  int32_t first_row, num_rows;  // of the plan's order
  int32_t num_rank_tiles;       // 0: nothing to do
  int32_t columns[kRankTiles];  // of h, the first of each rank tile
  // Where feature 0 of the rows of x lies, of whole groups of rows, and then of the ranks of A; null: values there are not read.
  const std::byte* lines[kLines];

  [[nodiscard]] __host__ __device__ static constexpr int head_bytes() {
    return (static_cast<int>(sizeof(Shared)) + kLineBytes - 1) / kLineBytes * kLineBytes;
  }
  /// Steps of so many lines that fit into `bytes` with this.
  [[nodiscard]] __host__ __device__ static constexpr int num_stages(int bytes, int lines) {
    const int fit = (bytes - head_bytes()) / (lines * kLineBytes);
    return fit < kMaxStages ? fit : kMaxStages;
  }
  [[nodiscard]] __device__ std::byte* tail() {
    return reinterpret_cast<std::byte*>(this) + head_bytes();
  }
};

/// Vector `index` of a row of a step: rows that lanes read together are in other banks.
__device__ inline int line_vector(int row, int index) {
  return row * kLineVectors + (index ^ row % 2 * (kLineVectors / 2));
}

/// Warps along the rows of an item.
__device__ inline int num_groups(int num_rows) {
  return num_rows <= kGroupRows ? 1 : num_rows <= 2 * kGroupRows ? 2 : kMaxGroups;
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
    of_ranks = line_vector(groups * kGroupRows + first_tile * kTileRanks + lane / 4, lane % 4);
  }
};

/// The features of some chains: chunks of a chain in ascending order, one chain after the other.
struct Features {
  int chain, end;  // chains
  int chunk, k;

  __device__ Features(int first, int count, int num_chunks)
      : chain(first),
        end(min(first + count, num_chunks)),
        chunk(first),
        k(first * kChunkFeatures) {}
  [[nodiscard]] __device__ bool is_done() const { return chain >= end; }
  __device__ void next(int in_features, int num_chunks) {
    k += kStep;
    if (k % kChunkFeatures != 0 && k < in_features) return;
    chunk += kChains;
    if (chunk >= num_chunks) chunk = ++chain;
    k = chunk * kChunkFeatures;
  }
};

template <int kWarpTiles>
__device__ void describe(const GroupedParams& p, Shared<kWarpTiles>& s, const GroupedTile& tile,
                         int pass) {
  const SiteParams& site = p.site;
  const int t = static_cast<int>(threadIdx.x);
  const int first_rank_line = num_groups(tile.num_rows) * kGroupRows;
  if (t < site.num_slices) {
    const SlotWeights weights(p, tile, t);
    s.a[t] = weights.a;
    s.ranks[t] = weights.rank;
  }
  if (const int i = t - (kThreads - kGroupedTileRows); i >= 0 && i < first_rank_line) {
    const std::byte* line = nullptr;
    if (i < tile.num_rows) {
      const int64_t row = p.plan.rows[tile.first + i];
      line = static_cast<const std::byte*>(site.input) + row * site.input_stride * 2;
    }
    s.lines[i] = line;
  }
  __syncthreads();
  constexpr int kMax = Shared<kWarpTiles>::kRankTiles;
  int total = 0;
  for (int i = 0; i < site.num_slices; ++i) {
    total += (s.ranks[i] + kTileRanks - 1) / kTileRanks;
  }
  const int passes = (total + kMax - 1) / kMax;
  const int each = passes > 1 ? (total + passes - 1) / passes : total;
  const int num_rank_tiles = max(0, min(each, total - pass * each));
  if (t == 0) {
    s.first_row = tile.first;
    s.num_rows = tile.num_rows;
    s.num_rank_tiles = num_rank_tiles;
  }
  for (int i = t; i < Shared<kWarpTiles>::kLines - first_rank_line; i += kThreads) {
    const std::byte* line = nullptr;
    if (i < num_rank_tiles * kTileRanks) {
      int rank_tile = pass * each + i / kTileRanks, slice = 0;
      while (true) {
        const int of_slice = (s.ranks[slice] + kTileRanks - 1) / kTileRanks;
        if (rank_tile < of_slice) break;
        rank_tile -= of_slice;
        ++slice;
      }
      const int rank = rank_tile * kTileRanks + i % kTileRanks;
      const LoraWeight& a = s.a[slice];
      if (rank < s.ranks[slice]) {
        const int64_t stride = site.is_transposed_a ? 1 : a.row_stride;
        line = static_cast<const std::byte*>(a.data) + rank * stride * 2;
      }
      if (i % kTileRanks == 0) {
        s.columns[i / kTileRanks] = slice * p.slice_ranks + rank_tile * kTileRanks;
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
  static constexpr int kStageVectors = kLineVectors;
  const std::byte* from[kCopies];
  unsigned present = 0;
  int feature, to;

  template <class Item>
  __device__ Copies(const GroupedParams&, const Item& s, int num_lines)
      : feature(static_cast<int>(threadIdx.x % kLineVectors * 8)),
        to(line_vector(static_cast<int>(threadIdx.x / kLineVectors),
                       static_cast<int>(threadIdx.x % kLineVectors))) {
    static_assert(kCopyLines % 2 == 0);  // line_vector() of all is as far apart
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int line = i * kCopyLines + static_cast<int>(threadIdx.x / kLineVectors);
      from[i] = line < num_lines ? s.lines[line] : nullptr;
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
  __device__ void arrive(uint4*) const {}
};

/// The same of lines that begin anywhere, with any number of features, and of A of either layout. The vectors that hold the features of
/// a line are copied as they lie, nine where they begin between multiples of 16 bytes, and shifted when they have arrived. Of a transposed A
/// elements are loaded one at a time.
template <int kCopies>
struct GeneralCopies {
  static constexpr int kStageVectors =
      kLineVectors + 1;  // of a line: behind all lines their ninth vectors come
  const std::byte* from[kCopies];
  int64_t step[kCopies];  // elements from one feature to the next
  unsigned present = 0, gathered = 0, shifted = 0;
  int feature, to;
  int next, next_step;  // the vector behind `to`, from one line of this thread to the next
  bool shifts;          // some lane of the warp

  template <class Item>
  __device__ GeneralCopies(const GroupedParams& p, const Item& s, int num_lines)
      : feature(static_cast<int>(threadIdx.x % kLineVectors * 8)) {
    const int first = static_cast<int>(threadIdx.x / kLineVectors);
    const int vector = static_cast<int>(threadIdx.x % kLineVectors);
    to = line_vector(first, vector);
    const bool is_last = vector == kLineVectors - 1;
    next = is_last ? num_lines * kLineVectors + first : line_vector(first, vector + 1);
    next_step = is_last ? kCopyLines : kCopyLines * kLineVectors;
    const int first_rank_line = num_groups(s.num_rows) * kGroupRows;
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int line = i * kCopyLines + first;
      from[i] = line < num_lines ? s.lines[line] : nullptr;
      step[i] = 1;
      if (from[i] == nullptr) continue;
      present |= 1u << i;
      if (p.site.is_transposed_a && line >= first_rank_line) {
        step[i] = s.a[s.columns[(line - first_rank_line) / kTileRanks] / p.slice_ranks].row_stride;
        gathered |= 1u << i;
      } else if (reinterpret_cast<uintptr_t>(from[i]) % 16 != 0) {
        shifted |= 1u << i;
      }
      from[i] += feature * step[i] * 2;
    }
    shifts = __any_sync(kAllLanes, shifted != 0);
  }

  /// Starts copying what holds the features [k, k + 64), zeros behind the last one.
  __device__ void start(int k, int in_features, uint4* stage) const {
    const int left = in_features - (k + feature);
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      if ((present & ~gathered & 1u << i) == 0) continue;
      const int past = static_cast<int>(reinterpret_cast<uintptr_t>(from[i]) % 16);
      const std::byte* const at = from[i] - past + k * 2;
      const int bytes = left * 2 + past;
      copy_async_16(&stage[to + i * kCopyLines * kLineVectors], at, max(0, min(bytes, 16)));
      if (past != 0 && feature == kStep - 8) {
        copy_async_16(&stage[next + i * next_step], at + 16, max(0, min(bytes - 16, 16)));
      }
    }
    if (gathered == 0) return;
    const int num = max(0, min(8, left));
    uint4 v[kCopies];
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {  // without branches: all lines are on their way at once
      const auto* first = reinterpret_cast<const uint16_t*>(from[i]);
      v[i] = gather_8(first + k * step[i], step[i], (gathered & 1u << i) != 0 ? num : 0);
    }
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      if ((gathered & 1u << i) != 0) stage[to + i * kCopyLines * kLineVectors] = v[i];
    }
  }

  /// Shifts what this warp copied to where products read it; its copies have arrived.
  __device__ void arrive(uint4* stage) const {
    if (!shifts) return;
    __syncwarp();
    uint4 v[kCopies];
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      if ((shifted & 1u << i) == 0) continue;
      const int past = static_cast<int>(reinterpret_cast<uintptr_t>(from[i]) % 16);
      v[i] =
          shift_down(stage[to + i * kCopyLines * kLineVectors], stage[next + i * next_step], past);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      if ((shifted & 1u << i) != 0) stage[to + i * kCopyLines * kLineVectors] = v[i];
    }
  }
};

}  // namespace heddle::cuda::lora::grouped_shrink
