#pragma once

#include "core/math.h"
#include "ops/lora_device/grouped/row_tiles_cuda.h"

namespace heddle::cuda::lora::grouped_shrink {

// The work items of shrink, and how they come into shared memory. An item is a row tile (up to 128
// rows of x), some rank tiles of its adapter (lines of A) and some chains of features. Features
// pass through a ring of stages, 64 at a time (a step). A stage of 64 rows and 32 ranks:
//
//   line 0 .. 63    x, one row a line     |  64 features = 8 vectors of 16 bytes  |
//   line 64 .. 95   A, one rank a line    |  64 features                          |
//
//   block   384 threads = 12 warps: 1, 2 or 4 along the rows, the others along the rank tiles
//   warp    32 rows x kWarpTiles rank tiles of 16 ranks
//   lane    (g, q) multiplies vectors q and q + 4 of line g of every eight lines

inline constexpr int kThreads = 384;
inline constexpr int kWarps = kThreads / 32;
inline constexpr int kStep = 64;  // features of a step: tensor cores sum these, f32 what is above
inline constexpr int kLineVectors = kStep / 8;              // vectors of 16 bytes of a line
inline constexpr int kCopyLines = kThreads / kLineVectors;  // lines that the block copies at once
inline constexpr int kProductRows = 16;                     // rows of x in a product
inline constexpr int kGroupRows = 32;                       // rows of x of a warp
inline constexpr int kMaxGroups = kGroupedTileRows / kGroupRows;
inline constexpr int kProducts = kStep / 16;  // products along the features of a step
inline constexpr int kMaxStages = 8;          // of the ring

/// Begins the shared memory of a block: its work item, with up to 3 * kWarpTiles rank tiles. After
/// it come the sums of a chain that wait for those of the next one (if any), and then the stages.
template <int kWarpTiles>
struct GroupedShared {
  static constexpr int kRankTiles = kWarps / kMaxGroups * kWarpTiles;
  static constexpr int kLines = kGroupedTileRows + kRankTiles * kTileRanks;
  static constexpr int kCopies =
      ceil_div(kLines, kCopyLines);  // vectors that a thread copies in a step
  static constexpr int kLineBytes = kStep * 2;

  LoraWeight a[kMaxSlices];
  int32_t ranks[kMaxSlices];
  int32_t first_row, num_rows;  // in the plan's order
  int32_t num_rank_tiles;       // 0: nothing to do
  int32_t columns[kRankTiles];  // of the partial sums: the first one of each rank tile
  // Address of feature 0 of each line: first x, filled up to whole groups of 32 rows, then A. Null:
  // nothing is read.
  const std::byte* lines[kLines];

  [[nodiscard]] __host__ __device__ static constexpr int head_bytes() {
    return round_up(static_cast<int>(sizeof(GroupedShared)), kLineBytes);
  }
  /// Stages of so many lines that fit into `bytes` together with this.
  [[nodiscard]] __host__ __device__ static constexpr int num_stages(int bytes, int lines) {
    const int fit = (bytes - head_bytes()) / (lines * kLineBytes);
    return fit < kMaxStages ? fit : kMaxStages;
  }
  [[nodiscard]] __device__ std::byte* tail() {
    return reinterpret_cast<std::byte*>(this) + head_bytes();
  }
};

/// Where vector `index` of a line lies in a stage. Odd lines have their halves swapped, so that
/// lines that a warp reads at the same time do not conflict in a bank.
__device__ inline int line_vector(int row, int index) {
  return row * kLineVectors + (index ^ row % 2 * (kLineVectors / 2));
}

/// Warps along the rows of an item, 32 rows each.
__device__ inline int num_groups(int num_rows) {
  return num_rows <= kGroupRows ? 1 : num_rows <= 2 * kGroupRows ? 2 : kMaxGroups;
}

/// The rows and rank tiles of a warp, and where its lane finds them in a stage.
struct WarpPlace {
  int first_row;          // of 32 rows
  int first_tile;         // of the rank tiles of a warp
  int last_tile;          // the last of them that exists, counted from first_tile
  int of_rows, of_ranks;  // vector q of line g, of x and of A

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

/// Walks through the features of some chains, a step at a time. With 10 chunks the chains 0 and 1
/// have the chunks 0 8 | 1 9.
struct Features {
  int chain, end;  // this chain, and the one after the last
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

/// Fills in the work item: row tile `tile`, pass `pass` over the ranks of all slices. Passes of a
/// row tile have equally many rank tiles, up to one. All threads call it.
template <int kWarpTiles>
__device__ void describe(const GroupedParams& p, GroupedShared<kWarpTiles>& s,
                         const GroupedTile& tile, int pass) {
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
  constexpr int kMax = GroupedShared<kWarpTiles>::kRankTiles;
  int total = 0;
  for (int i = 0; i < site.num_slices; ++i) {
    total += ceil_div(s.ranks[i], kTileRanks);
  }
  const int passes = ceil_div(total, kMax);
  const int each = passes > 1 ? ceil_div(total, passes) : total;
  const int num_rank_tiles = max(0, min(each, total - pass * each));
  if (t == 0) {
    s.first_row = tile.first;
    s.num_rows = tile.num_rows;
    s.num_rank_tiles = num_rank_tiles;
  }
  for (int i = t; i < GroupedShared<kWarpTiles>::kLines - first_rank_line; i += kThreads) {
    const std::byte* line = nullptr;
    if (i < num_rank_tiles * kTileRanks) {
      int rank_tile = pass * each + i / kTileRanks, slice = 0;
      while (true) {
        const int of_slice = ceil_div(s.ranks[slice], kTileRanks);
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

/// The lines of which this thread copies one vector in each step. Lines without an address keep
/// what lies in shared memory: there are sums of these, too, but nothing reads them.
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
    static_assert(kCopyLines % 2 == 0);  // the copies of a thread lie equally far apart
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int line = i * kCopyLines + static_cast<int>(threadIdx.x / kLineVectors);
      from[i] = line < num_lines ? s.lines[line] : nullptr;
      if (from[i] == nullptr) continue;
      present |= 1u << i;
      from[i] += feature * 2;
    }
  }

  /// Starts to copy the features [k, k + 64).
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

/// Copies for lines that begin at any address, any number of features, and A of either layout. A
/// line is copied by the vectors of 16 bytes that hold it, which are nine where it begins between
/// multiples of 16. When they have arrived, they are shifted in place. The elements of a transposed
/// A are loaded one by one.
template <int kCopies>
struct GeneralCopies {
  static constexpr int kStageVectors =
      kLineVectors + 1;  // of a line: after all lines come their ninth vectors
  const std::byte* from[kCopies];
  int64_t step[kCopies];  // elements from one feature to the next
  unsigned present = 0, gathered = 0, shifted = 0;
  int feature, to;
  int next,
      next_step;  // where the vector after `to` lies, and from one line of this thread to the next
  bool shifts;    // some lane of the warp has lines to shift

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

  /// Starts to copy the vectors that hold the features [k, k + 64), zeros after the last feature.
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
    for (int i = 0; i < kCopies;
         ++i) {  // without branches, so that the loads do not wait for each other
      const auto* first = reinterpret_cast<const uint16_t*>(from[i]);
      v[i] = gather_8(first + k * step[i], step[i], (gathered & 1u << i) != 0 ? num : 0);
    }
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      if ((gathered & 1u << i) != 0) stage[to + i * kCopyLines * kLineVectors] = v[i];
    }
  }

  /// Shifts what this warp has copied, and what has arrived, to where products read it.
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
