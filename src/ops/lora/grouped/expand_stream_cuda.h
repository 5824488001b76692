#pragma once

#include "cuda/sm90/ring_cuda.h"

#include "core/math.h"
#include "ops/lora_device/grouped/row_tile_h_cuda.h"

namespace heddle::cuda::lora::grouped_stream {

// The streaming expand for 9.0: a ring of stages (ring_cuda.h) between ten warps. A stage holds 16
// rows of y (256 outputs) and their h, and goes round like this:
//
//             empty                    full                     done
//   finish  -------->  load (1 warp)  ----->  multiply (8)     ----->  finish (1 warp)
//           wait for   fill head; copy        y = round(y +           copy y to memory
//           the reads  y and h to the stage   factor * h B^T)
//
// Each arrow is a barrier of the stage. B of the block's 256 outputs passes from load to multiply
// through a buffer of its own (b_full, b_empty) and stays in registers until it changes.

inline constexpr ExpandForm kForm = kStreamForm;
inline constexpr int kWarps = kForm.warps;                  // warps that multiply
inline constexpr int kLoad = kWarps, kFinish = kWarps + 1;  // the warps after them
inline constexpr int kThreads = (kWarps + 2) * 32;
inline constexpr int kBlockOutputs = kWarps * kGroupOutputs;
inline constexpr int kLaneRows =
    kGroupedTileRows / 32;         // rows of a row tile whose number a lane of the loading warp has
inline constexpr int kMaxRun = 8;  // items of a run, at most
// Vectors from one row of y to the next in a stage. Four are free, so that the rows that lanes
// access at the same time do not conflict in a bank.
inline constexpr int kYVectors = kBlockOutputs / kLaneOutputs + 4;
static_assert(kForm.warp_outputs == kGroupOutputs);

template <int kSteps>
inline constexpr int kStages = kSteps == 1 ? 8 : 6;

/// Where the eight warps take B from when they come to a stage: they keep theirs, take what the
/// loading warp has copied to shared memory, or load from global memory.
enum class TakesB : int32_t { kNo, kCopy, kMemory };

/// What the loading warp writes about the rows of a stage, up to 16 of one row tile.
struct StageHead {
  int32_t num_rows;  // 0: no more work
  int32_t rank;      // of the adapter
  int32_t h_row;     // the first row, in the plan's order
  int32_t y_bytes;   // of a row, of outputs that exist
  TakesB takes_b;    // whether B changes with this stage
  int64_t b_stride;  // bytes from one output to the next
  const std::byte* b;
  std::byte* y[kProductRows];
  float factor[kProductRows];

  /// Calls copy(i, address of row i) for each row. All lanes of a warp call it. Sixteen rows are
  /// copied by one lane (see is_elected()), fewer by a lane each.
  template <class Copy>
  __device__ void for_each_row(int rows, Copy&& copy) const {
    if (rows == kProductRows) {
      if (is_elected()) {
        std::byte* to[kProductRows];
#pragma unroll
        for (int i = 0; i < kProductRows; ++i) to[i] = y[i];
#pragma unroll
        for (int i = 0; i < kProductRows; ++i) copy(i, to[i]);
      }
    } else if (const int lane = static_cast<int>(threadIdx.x % 32); lane < rows) {
      copy(lane, y[lane]);
    }
    __syncwarp();
  }
};

template <int kSteps>
struct alignas(128) Stage {
  uint4 y[kProductRows][kYVectors];
  uint4 h[kProductRows * kSteps * kHStepVectors];
  StageHead head;
};

template <int kSteps>
struct Shared {
  static constexpr int kBBytes = kSteps * kTileRanks * 2;  // of an output

  Stage<kSteps> stages[kStages<kSteps>];
  alignas(16) std::byte b[kBlockOutputs * kBBytes];
  Ring<kStages<kSteps>> ring;
  PhaseBarrier done[kStages<kSteps>];
  PhaseBarrier b_full, b_empty;
};
static_assert(2 * (sizeof(Shared<1>) + 1024) <= 228 * 1024);
static_assert(2 * (sizeof(Shared<4>) + 1024) <= 228 * 1024);

/// The work items of a block: an item is a row tile times 256 outputs. The order of all items goes
/// through the row tiles of 128 rows (one, two or four, a group), then to the next outputs of
/// these, then to the next group. Blocks take runs of them in turn. So blocks that run at the same
/// time work on the same rows, which lie close together in memory. With small row tiles a run has
/// several items, which may share B.
struct ItemOrder {
  int num_tiles, output_tiles, group, run, total, blocks;

  __device__ ItemOrder(const GroupedParams& p, const GroupedHead& plan)
      : num_tiles(plan.num_tiles),
        output_tiles(p.output_tiles_per_row_tile),
        group(kGroupedTileRows / rows_of_tile(plan.num_rows)),
        total(num_tiles * output_tiles),
        blocks(static_cast<int>(gridDim.x)) {
    run = 1;
    if (group == 1) return;
    const int each = ceil_div(total, blocks);
    const int group_runs = ceil_div(total, group);
    if (each <= kMaxRun) {
      run = max(each, 1);
    } else if (ceil_div(group_runs, blocks) * group == each) {
      run = group;
    }
  }
  /// The i-th item of this block, or total where it has none.
  [[nodiscard]] __device__ int get(int i) const {
    return min(total, (i / run * blocks + static_cast<int>(blockIdx.x)) * run + i % run);
  }
  [[nodiscard]] __device__ int tile_of(int item, int& output_tile) const {
    const int of_group = group * output_tiles, at = item / of_group;
    const int tiles = min(group, num_tiles - at * group), local = item - at * of_group;
    output_tile = local / tiles;
    return at * group + local - output_tile * tiles;
  }
};

/// What the loading warp knows of an item. It looks up one item while it works on those before.
struct StreamItem {
  GroupedTile tile;
  int slice, first;  // output
  LoraWeight a, b;
  int32_t rows[kLaneRows];

  __device__ void find(const GroupedParams& p, const ItemOrder& order, int i) {
    int output_tile = 0;
    const int item = order.get(i);
    tile.slot = -1;
    if (item >= order.total) return;
    tile = p.plan.tiles[order.tile_of(item, output_tile)];
    slice = 0;
    while (output_tile >= p.output_tile_end[slice]) ++slice;
    first = (slice > 0 ? output_tile - p.output_tile_end[slice - 1] : output_tile) * kBlockOutputs;
  }
  __device__ void load(const GroupedParams& p) {
    if (tile.slot < 0) return;
    a = read_weight(p.site.a, tile.slot, slice);
    b = read_weight(p.site.b, tile.slot, slice);
    const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
    for (int i = 0; i < kLaneRows; ++i) {
      if (i * 32 + lane < tile.num_rows) rows[i] = p.plan.rows[tile.first + i * 32 + lane];
    }
  }
};

/// Addresses of an item: y and B from output `first` on, and h.
struct Target {
  std::byte* y;
  const std::byte* b;
  int64_t y_stride, b_stride;  // bytes
  const std::byte* h;
  int32_t h_row_bytes;
  uint32_t y_bytes;  // of a row
  int32_t rank;
  float scale;

  __device__ Target(const GroupedParams& p, const StreamItem& item, int rank)
      : h_row_bytes(p.h_row_vectors * kHVectorBytes),
        rank(rank),
        scale(p.site.scale * item.b.scale) {
    const SliceParams& slice = p.site.slices[item.slice];
    y = static_cast<std::byte*>(slice.y) + int64_t{item.first} * 2;
    y_stride = slice.y_stride * 2;
    b_stride = item.b.row_stride * 2;
    b = static_cast<const std::byte*>(item.b.data) + item.first * b_stride;
    y_bytes = static_cast<uint32_t>(min(kBlockOutputs, slice.width - item.first)) * 2;
    h = p.h + item.slice * p.h_slice_bytes + int64_t{item.tile.first} * h_row_bytes;
  }
};

/// load: the warp that fills the stages and B.
template <int kSteps>
struct Load {
  const GroupedParams& p;
  Shared<kSteps>& s;
  RingPlace at = RingPlace::of_load();
  uint32_t b_parity = 1;
  int cached_slot = -1, cached_slice = -1, cached_first = -1;
  // h is written by join, which may still run. Until it has ended, lane i remembers the h of stage
  // i, and the warp fills what else the stages need.
  bool waits = true;
  int early = 0;
  const std::byte* early_h = nullptr;
  uint32_t early_bytes = 0;

  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }

  __device__ void wait_for_h() {
    wait_for_predecessor();
    waits = false;
    if (lane() < early) bulk_load(s.stages[lane()].h, early_h, early_bytes, s.ring.full[lane()]);
    __syncwarp();
  }

  /// Starts to copy B of an item's outputs, if it is one piece of memory. The buffer keeps what it
  /// has for ranks and outputs that do not exist.
  __device__ TakesB load_b(const Target& target) {
    if (target.b_stride != target.rank * 2 || target.b_stride % 16 != 0) return TakesB::kMemory;
    if (waits && early > 0) wait_for_h();  // or the previous B would never be read
    s.b_empty.wait(b_parity);
    b_parity ^= 1;
    if (is_elected()) {
      const auto bytes = target.y_bytes / 2 * static_cast<uint32_t>(target.b_stride);
      s.b_full.arrive_and_expect(bytes);
      bulk_load(s.b, target.b, bytes, s.b_full);
    }
    __syncwarp();
    return TakesB::kCopy;
  }

  /// Starts to fill the next stage with the rows [first, first + 16) of a row tile.
  __device__ void load_rows(const StreamItem& item, const Target& target, int first,
                            TakesB takes_b) {
    int32_t of_lane = item.rows[0];
#pragma unroll
    for (int i = 1; i < kLaneRows; ++i) {
      if (first / 32 == i) of_lane = item.rows[i];
    }
    const int row = __shfl_sync(kAllLanes, of_lane, first % 32 + lane() % kProductRows);
    const int num_rows = min(kProductRows, item.tile.num_rows - first);
    const std::byte* const h = target.h + first * target.h_row_bytes;
    const auto h_bytes = static_cast<uint32_t>(num_rows * target.h_row_bytes);
    std::byte* const y = target.y + row * target.y_stride;
    const bool has_row = lane() < num_rows;
    float factor = target.scale;
    if (p.site.row_scale != nullptr && has_row) factor *= p.site.row_scale[row];

    s.ring.wait_empty(at);
    Stage<kSteps>& stage = s.stages[at.stage];
    PhaseBarrier& full = s.ring.full[at.stage];
    if (has_row) stage.head.y[lane()] = y, stage.head.factor[lane()] = factor;
    if (lane() == 0) {
      stage.head.num_rows = num_rows, stage.head.rank = target.rank;
      stage.head.h_row = item.tile.first + first;
      stage.head.y_bytes = static_cast<int32_t>(target.y_bytes);
      stage.head.takes_b = takes_b;
      stage.head.b_stride = target.b_stride, stage.head.b = target.b;
    }
    __syncwarp();
    if (lane() == 0) {
      const uint32_t all_y =
          p.site.accumulate ? static_cast<uint32_t>(num_rows) * target.y_bytes : 0;
      full.arrive_and_expect(all_y + h_bytes);
    }
    if (waits && lane() == at.stage) early_h = h, early_bytes = h_bytes;
    __syncwarp();
    if (!waits && is_elected()) bulk_load(stage.h, h, h_bytes, full);
    if (p.site.accumulate) {
      stage.head.for_each_row(num_rows, [&](int i, const std::byte* y_row) {
        bulk_load(stage.y[i], y_row, target.y_bytes, full);
      });
    }
    if (waits && ++early == kStages<kSteps>) wait_for_h();
    at.advance(kStages<kSteps>);
  }

  __device__ void run() {
    const GroupedHead plan(p);
    const ItemOrder order(p, plan);
    StreamItem item, next;
    item.find(p, order, 0);
    item.load(p);
    next.find(p, order, 1);
#pragma unroll 1
    for (int i = 0; item.tile.slot >= 0; ++i) {
      StreamItem later;
      later.find(p, order, i + 2);
      next.load(p);
      const SlotWeights weights(item.a, item.b, item.tile.num_rank_tiles);
      if (weights.rank > 0) {
        const Target target(p, item, weights.rank);
        TakesB takes_b = TakesB::kNo;
        if (cached_slot != item.tile.slot || cached_slice != item.slice ||
            cached_first != item.first) {
          takes_b = load_b(target);
          cached_slot = item.tile.slot, cached_slice = item.slice, cached_first = item.first;
        }
#pragma unroll 1
        for (int first = 0; first < item.tile.num_rows; first += kProductRows) {
          load_rows(item, target, first, takes_b);
          takes_b = TakesB::kNo;
        }
      }
      item = next;
      next = later;
    }
    if (waits) wait_for_h();
    plan.refuse_if_foreign(p, static_cast<int>(blockIdx.x) * 32 + lane(),
                           static_cast<int>(gridDim.x) * 32);
    s.ring.wait_empty(at);
    if (lane() == 0) {
      s.stages[at.stage].head.num_rows = 0;
      s.ring.full[at.stage].arrive();
    }
  }
};

/// finish: the warp that writes rows of y to memory.
template <int kSteps>
__device__ void finish(Shared<kSteps>& s) {
  RingPlace at = RingPlace::of_finish();
#pragma unroll 1
  while (true) {
    s.done[at.stage].wait(at.parity);
    const Stage<kSteps>& stage = s.stages[at.stage];
    const auto bytes = static_cast<uint32_t>(stage.head.y_bytes);
    if (stage.head.num_rows == 0) break;
    stage.head.for_each_row(stage.head.num_rows,
                            [&](int i, std::byte* y) { bulk_store(y, stage.y[i], bytes); });
    commit_bulk_stores();
    wait_for_bulk_reads();
    __syncwarp();
    if (threadIdx.x % 32 == 0) s.ring.empty[at.stage].arrive();
    at.advance(kStages<kSteps>);
  }
  wait_for_bulk_stores();
}

}  // namespace heddle::cuda::lora::grouped_stream
