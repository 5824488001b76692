#pragma once

#include <algorithm>
#include <limits>

#include "cuda/begin_early_cuda.h"
#include "cuda/early_launch.h"
#include "cuda/index_cuda.h"
#include "cuda/list_sums_cuda.h"

#include "ops/speculation/lanes/lanes_cuda.h"
#include "ops/speculation/lanes/rewind_kv_cache_cuda.h"

namespace heddle::cuda::speculation {

// Rewinds by lane groups: 2^group_shift neighbouring lanes of a warp have a request together, and
// blocks have shares of the requests. For tensors without gaps and few drafts;
// rewind_kv_cache_cuda.h has what serves all others.

/// KvBlocks and Releases.
struct GroupKv {
  ContiguousIndices last_offset, length, count, last_id;  // [rows]
  ContiguousIndexRows ids;                                // [rows, max_blocks]
  ContiguousIndices release_ids;                          // [num_last_ids]
  std::byte* release_mask = nullptr;                      // [mask_size]
  ContiguousIndices list, list_size;                      // [capacity], [1]
  uint64_t* list_sums = nullptr;
  uint32_t block_size = 0, max_blocks = 0, num_last_ids = 0, mask_size = 0, capacity = 0,
           num_rows = 0;
  uint8_t group_shift = 0;
  bool is_listed = false;
};

/// Numbers that 32 bits hold with room for sums: those of any state that makes sense.
inline constexpr int64_t kSmall = int64_t{1} << 29;

/// The id of the last block that is in use after a rewind, or of the table's last entry where more
/// are said to be.
template <IndexLayout kLayout, class Int>
[[nodiscard]] __device__ int64_t load_last_used_id(const GroupKv& kv, uint32_t row,
                                                   const BasicKvRewind<Int>& rewind) {
  const auto max_blocks = static_cast<Int>(kv.max_blocks);
  if (rewind.left <= 0 || max_blocks == 0) return kNoBlock;
  const Int entry = rewind.left < max_blocks ? rewind.left - 1 : max_blocks - 1;
  return load_if<kLayout>(true, kv.ids.row_given(row), static_cast<uint32_t>(entry)).value();
}

/// The cache of a request on its way, and the ids of its last two blocks. Each lane of a group has
/// all of it.
template <IndexLayout kLayout>
class GroupRow {
 public:
  __device__ GroupRow(const GroupKv& kv, uint32_t row, bool is_active)
      : offset_(load_if<kLayout>(is_active, kv.last_offset, row)),
        count_(load_if<kLayout>(is_active, kv.count, row)),
        last_id_(load_if<kLayout>(is_active, kv.last_id, row)),
        length_(load_if<kLayout>(is_active, kv.length, row)) {}

  /// Waits for the count. Loads the ids at the end of the row, before it is known which of them
  /// is wanted.
  __device__ void load_ids(const GroupKv& kv, uint32_t row, bool is_active, bool with_last) {
    const ContiguousIndices ids = kv.ids.row_given(row);
    is_small_ = offset_.is_within(kSmall) && count_.is_within(kSmall);
    const auto count = static_cast<int32_t>(count_.low);
    const auto max_blocks = static_cast<int32_t>(kv.max_blocks);
    const int32_t in_table = count < max_blocks ? count : max_blocks;
    const bool loads = is_active && is_small_;
    last_ = load_if<kLayout>(loads && with_last && in_table > 0, ids, uint32_t(in_table - 1));
    before_ = load_if<kLayout>(loads && in_table > 1, ids, uint32_t(in_table - 2));
  }
  /// Whether offset and count are small.
  [[nodiscard]] __device__ bool is_small() const { return is_small_; }
  [[nodiscard]] __device__ KvRow row() const {
    return {offset_.value(), length_.value(), count_.value(), last_id_.value()};
  }
  /// Of a small row.
  [[nodiscard]] __device__ BasicKvRewind<int32_t> plan(const GroupKv& kv, uint32_t rejected) const {
    return plan_rewind<int32_t>(static_cast<int32_t>(offset_.low), static_cast<int32_t>(count_.low),
                                static_cast<int32_t>(rejected), static_cast<int32_t>(kv.max_blocks),
                                static_cast<int32_t>(kv.block_size), GeneralQuotient{});
  }
  /// As load_last_used_id() does, of a small row. Reads again in cases that hardly occur.
  [[nodiscard]] __device__ int64_t last_used_id(const GroupKv& kv, uint32_t row,
                                                const BasicKvRewind<int32_t>& rewind) const {
    if (rewind.crossed <= 1 && rewind.left > 0 &&
        rewind.left < static_cast<int32_t>(kv.max_blocks)) {
      return rewind.crossed == 0 ? last_.value() : before_.value();
    }
    return load_last_used_id<kLayout>(kv, row, rewind);
  }

 private:
  LoadedIndex offset_, count_, last_id_, length_, last_{}, before_{};
  bool is_small_ = false;
};

/// plan_rewind of a row that is not small.
[[nodiscard]] inline __device__ KvRewind plan_large(const GroupKv& kv, const KvRow& row,
                                                    uint32_t rejected) {
  return plan_rewind<int64_t>(row.offset, row.count, rejected, kv.max_blocks, kv.block_size,
                              GeneralQuotient{});
}
[[nodiscard]] static __device__ __noinline__ uint32_t count_released(const GroupKv& kv, KvRow row,
                                                                     uint32_t rejected) {
  return static_cast<uint32_t>(plan_large(kv, row, rejected).num_released);
}

/// The places of a group's released ids in the list: those before its block are known only
/// later. Threads after the first `lanes` of a block take no part.
class GroupPlaces {
 public:
  /// A barrier of the block lies between this and publish().
  __device__ void count(const GroupKv& kv, const LaneGroup& group, uint32_t num_released,
                        uint32_t* warp_totals) {
    if (!kv.is_listed) return;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t sum;  // up to this group
    if (__any_sync(kAllLanes, num_released > 1)) {
      sum = num_released;
      for (uint32_t d = group.size; d < 32; d *= 2) {
        const uint32_t below = __shfl_up_sync(kAllLanes, sum, d);
        if (lane >= d) sum += below;
      }
    } else {
      const uint32_t ones = __ballot_sync(kAllLanes, num_released == 1 && group.lane == 0);
      sum = __popc(ones & (kAllLanes >> (31 - lane)));
    }
    in_block_ = sum - num_released;
    if (lane == 31) warp_totals[warp] = sum;
  }
  /// Publishes to the other blocks how many ids this one has.
  template <ListOrder kOrder>
  __device__ void publish(const GroupKv& kv, const ListSums<kOrder>& sums, uint32_t lanes,
                          const uint32_t* warp_totals) {
    if (!kv.is_listed) return;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t of_warp = lane < lanes / 32 ? warp_totals[lane] : 0;
    in_block_ += __reduce_add_sync(kAllLanes, lane < warp ? of_warp : 0);
    of_block_ = __reduce_add_sync(kAllLanes, of_warp);
    if (threadIdx.x == 0) sums.publish(of_block_);
  }
  /// Waits for the blocks before this one where this warp releases something. The last block writes
  /// how many ids there are. Called by all threads that called publish().
  template <IndexLayout kLayout, ListOrder kOrder>
  [[nodiscard]] __device__ uint32_t first(const GroupKv& kv, const ListSums<kOrder>& sums,
                                          uint32_t num_released) const {
    if (!kv.is_listed) return 0;
    const bool is_end = sums.is_last() && threadIdx.x < 32;
    if (!__any_sync(kAllLanes, is_end || num_released > 0)) return 0;
    const uint32_t before = sums.before();
    store_if<kLayout>(is_end && threadIdx.x == 0, kv.list_size, 0, before + of_block_);
    return before + in_block_;
  }

 private:
  uint32_t in_block_ = 0, of_block_ = 0;
};

/// Writes the cache of a request after its rewind, or what a row that is not active gets. last_id
/// is last_used_id().
template <IndexLayout kLayout, class Int>
__device__ void store_rewind(const GroupKv& kv, const LaneGroup& group, bool is_active,
                             const KvRow& row, const BasicKvRewind<Int>& rewind, int64_t last_id) {
  const bool is_first = group.lane == 0, changes = is_active && is_first;
  const bool moves =
      changes && (rewind.rejected != 0 || rewind.offset != static_cast<Int>(row.offset));
  const bool crosses = changes && rewind.crossed > 0;
  store_if<kLayout>(moves, kv.last_offset, group.row, rewind.offset);
  store_if<kLayout>(moves, kv.length, group.row, row.length - rewind.rejected);
  store_if<kLayout>(crosses, kv.count, group.row, rewind.left);
  store_if<kLayout>(crosses, kv.last_id, group.row, last_id);
  store_if<kLayout>(changes || (is_first && group.row < kv.num_last_ids), kv.release_ids, group.row,
                    is_active ? row.last_id : 0);
  if (kv.release_mask != nullptr && (changes || (is_first && group.row < kv.mask_size))) {
    kv.release_mask[group.row] = std::byte{crosses};
  }
}
/// Whether a request releases just its last block, as nearly all do that release any.
template <class Int>
[[nodiscard]] __device__ bool is_one_block(const GroupKv& kv, const BasicKvRewind<Int>& rewind) {
  return rewind.crossed == 1 && rewind.num_released == 1 &&
         rewind.left < static_cast<Int>(kv.max_blocks);
}
/// store_released where that is so: the entry first, its id when its place is known.
template <IndexLayout kLayout>
__device__ void clear_one_entry(const GroupKv& kv, const LaneGroup& group, bool is_one,
                                const BasicKvRewind<int32_t>& rewind) {
  store_if<kLayout>(is_one && group.lane == 0, kv.ids.row_given(group.row),
                    static_cast<uint32_t>(rewind.left), kNoBlock);
}
template <IndexLayout kLayout>
__device__ void list_one_id(const GroupKv& kv, const LaneGroup& group, bool is_one, int64_t id,
                            uint32_t place) {
  store_if<kLayout>(is_one && group.lane == 0 && place < kv.capacity, kv.list, place, id);
}
/// Lists the ids that a request releases from place `place` on and clears them in the table. All
/// lanes of its group call it, where there are any.
template <IndexLayout kLayout, class Int>
__device__ void store_released(const GroupKv& kv, const LaneGroup& group, const KvRow& row,
                               const BasicKvRewind<Int>& rewind, uint32_t place) {
  const ContiguousIndices ids = kv.ids.row_given(group.row);
  const auto count = static_cast<Int>(row.count), max_blocks = static_cast<Int>(kv.max_blocks);
  const auto lane = static_cast<Int>(group.lane), size = static_cast<Int>(group.size);
  if (kv.list.is_given()) {
    const Int with_last = count > 0 ? 1 : 0;
    const Int last = last_listed<Int>(count, max_blocks) + with_last;
#pragma unroll 1
    for (Int e = lane; e < rewind.num_released; e += size) {
      const LoadedIndex id = load_if<kLayout>(e >= with_last, ids, static_cast<uint32_t>(last - e));
      const uint32_t to = place + static_cast<uint32_t>(e);
      store_if<kLayout>(to < kv.capacity, kv.list, to, e >= with_last ? id.value() : row.last_id);
    }
    __syncwarp(group.mask());
  }
  // Entry 0 is cleared even without a block in use, the last one where more are said to be than the
  // table has.
  const Int used = count > 1 ? count : 1, end = used < max_blocks ? used : max_blocks;
#pragma unroll 1
  for (Int b = rewind.left + lane; b < end; b += size) {
    store_if<kLayout>(true, ids, static_cast<uint32_t>(b), kNoBlock);
  }
  if (used > max_blocks) {
    store_if<kLayout>(lane == 0 && max_blocks > 0, ids, kv.max_blocks - 1, kNoBlock);
  }
}

/// All that follows from a rewind, where the state of a cache makes no sense. Params: of a kernel,
/// with a GroupKv kv.
template <IndexLayout kLayout, class Params>
static __device__ __noinline__ void finish_large_rewind(const Params& p, LaneGroup group, KvRow row,
                                                        uint32_t rejected, uint32_t place) {
  const KvRewind rewind = plan_large(p.kv, row, rejected);
  const int64_t id = load_last_used_id<kLayout>(p.kv, group.row, rewind);
  store_rewind<kLayout>(p.kv, group, true, row, rewind, id);
  if (rewind.crossed > 0) store_released<kLayout>(p.kv, group, row, rewind, place);
}
/// All that follows from a rewind, after places.publish(). before: of `row`; `rewind` is that of
/// one that is not large.
template <IndexLayout kLayout, ListOrder kOrder, class Params>
__device__ void finish_rewind(const Params& p, const LaneGroup& group, const GroupRow<kLayout>& row,
                              const KvRow& before, bool is_active, bool is_large, uint32_t rejected,
                              const BasicKvRewind<int32_t>& rewind, uint32_t num_released,
                              const GroupPlaces& places, const ListSums<kOrder>& sums) {
  if (!is_large) {
    const int64_t id = rewind.crossed > 0 ? row.last_used_id(p.kv, group.row, rewind) : kNoBlock;
    store_rewind<kLayout>(p.kv, group, is_active, before, rewind, id);
  }
  const bool is_one = is_one_block(p.kv, rewind);
  clear_one_entry<kLayout>(p.kv, group, is_one, rewind);
  const uint32_t place = places.template first<kLayout>(p.kv, sums, num_released);
  list_one_id<kLayout>(p.kv, group, is_one, before.last_id, place);
  if (rewind.crossed > 0 && !is_one) store_released<kLayout>(p.kv, group, before, rewind, place);
  if (is_large) finish_large_rewind<kLayout>(p, group, before, rejected, place);
}

/// Whether something in a GroupKv counts further than 32 bits.
[[nodiscard]] inline bool is_large(const KvBlocks& kv, const Releases& r, int64_t num_rows) {
  return num_rows > kMaxOfLaneGroups >> 5 || r.capacity > kMaxOfLaneGroups ||
         kv.max_blocks >= kSmall || kv.block_size >= kSmall ||
         num_rows * (kv.max_blocks + 1) > kMaxOfLaneGroups;
}
[[nodiscard]] inline GroupKv make_group_kv(const KvBlocks& kv, const Releases& r, int64_t num_rows,
                                           IndexPacker& pack) {
  return {.last_offset = pack(kv.last_offset),
          .length = pack(kv.length),
          .count = pack(kv.count),
          .last_id = pack(kv.last_id),
          .ids = pack(kv.ids),
          .release_ids = pack(r.last_ids),
          .release_mask = r.mask.data(),
          .list = pack(r.list),
          .list_size = pack.element(r.list_size),
          .block_size = static_cast<uint32_t>(kv.block_size),
          .max_blocks = static_cast<uint32_t>(kv.max_blocks),
          .num_last_ids = static_cast<uint32_t>(r.num_last_ids),
          .mask_size = static_cast<uint32_t>(r.mask_size),
          .capacity = static_cast<uint32_t>(r.capacity),
          .num_rows = static_cast<uint32_t>(num_rows),
          .is_listed = r.listed};
}
/// Launches kLaunched, or kStarted where the choice has blocks take tickets.
template <auto kLaunched, auto kStarted, class Params>
void launch_lanes(const ExecContext& ctx, const SpeculationChoice& choice, dim3 grid,
                  unsigned threads, const Params& p) {
  if (choice.has_tickets) return launch_early<kStarted>(ctx, grid, threads, p);
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.stream = ctx.stream;
  launch_clusters_early<kLaunched>(ctx.device.index, config, choice.cluster_size, p);
}
/// What the choice of a kernel adds.
inline void set_choice(const SpeculationChoice& choice, uint64_t* list_sums, GroupKv& kv) {
  kv.group_shift = static_cast<uint8_t>(choice.group_shift);
  kv.list_sums = kv.is_listed && choice.blocks > 1 ? list_sums : nullptr;
}

}  // namespace heddle::cuda::speculation
