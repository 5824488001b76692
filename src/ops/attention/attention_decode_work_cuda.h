#pragma once

// Who computes what in decode, found on the device: sequences are cut into segments by their own length, and the segments of all
// sequences are dealt to the blocks in order, so that each gets about the same number of keys.

#include <cstdint>

#include "ops/attention/attention_decode_params.h"
#include "ops/attention/attention_mask_cuda.h"

namespace heddle::cuda {

/// Costs are counted in tiles of keys, 32 bits: 2^32 of them are 17 TB of keys and values of 128 elements.
inline constexpr uint32_t kSegmentCost = 6;  // of beginning and ending one, in tiles

/// A unit is a kv head of a sequence with up to a number of rows of q; its segments are numbered, those of the next unit follow.
struct SequenceWork {
  int64_t first_page = 0;
  int first_token = 0, q_len = 0, kv_len = 0;
  int first_key = 0, begin = 0;  // the first key that any row sees; the tile's begin
  int segment = 0;               // keys of a segment
  uint32_t num_segments = 0, num_units = 0, segment_cost = 0, unit_cost = 0;

  [[nodiscard]] __device__ uint32_t cost() const { return num_units * unit_cost; }
  /// The first segment (of the unit's first where units are not shared) that begins at x or behind; x counts from the sequence's begin.
  [[nodiscard]] __device__ uint32_t first_segment_from(uint32_t x, bool is_shared) const {
    if (x >= cost()) return num_units * num_segments;
    const uint32_t unit = x / unit_cost, rest = x - unit * unit_cost;
    uint32_t segment = (rest + segment_cost - 1) / segment_cost;
    if (!is_shared && segment > 0) segment = num_segments;
    return unit * num_segments + min(segment, num_segments);
  }
};

__device__ inline SequenceWork sequence_work(const AttentionKernelParams& p, int64_t seq,
                                             int rows_of_unit) {
  const SequenceRows rows = sequence_rows(p, seq);
  const SequencePages pages = sequence_pages(p.kv, seq);
  SequenceWork work;
  work.first_page = pages.first_page;
  work.first_token = static_cast<int>(rows.first);
  work.q_len = rows.q_len;
  work.kv_len = pages.kv_len;
  if (p.window_left >= 0) {
    work.first_key = min(max(pages.kv_len - rows.q_len - p.window_left, 0), pages.kv_len);
  }
  work.begin = work.first_key / kTileKeys * kTileKeys;
  const int length = pages.kv_len - work.begin;
  work.segment = max((length + kMaxSegments - 1) / kMaxSegments, kMinSegmentKeys);
  work.segment = (work.segment + kSegmentUnit - 1) / kSegmentUnit * kSegmentUnit;
  work.num_segments = static_cast<uint32_t>(max((length + work.segment - 1) / work.segment, 1));
  work.segment_cost = static_cast<uint32_t>(work.segment / kTileKeys) + kSegmentCost;
  work.unit_cost = static_cast<uint32_t>((length + kTileKeys - 1) / kTileKeys) +
                   work.num_segments * kSegmentCost;
  const int num_rows = rows.q_len * p.group_size;
  work.num_units = static_cast<uint32_t>(
      ((num_rows + rows_of_unit - 1) >> (rows_of_unit == 16 ? 4 : 3)) * p.num_kv_heads);
  return work;
}

/// Neighbouring segments of one unit, for one block.
struct Run {
  int64_t first_page;
  int seq, kv_head,
      first_row;  // row r of a unit is query r / group_size and head r % group_size of the kv head
  int first_token, q_len, kv_len;
  int first_key, begin, end;  // keys of the run; those before first_key are seen by nobody
  int segment, first_tile;    // keys of a segment; tiles of the unit before the run
  uint32_t first_segment, end_segment, num_segments;
  uint32_t cost_before, segment_cost;  // of all before the unit, of a segment
};

/// The share of block `block` of `num_blocks` in `total`: [begin(block), begin(block + 1)).
struct Shares {
  uint32_t part, rest;

  __device__ Shares(uint32_t total, uint32_t num_blocks)
      : part(total / num_blocks), rest(total % num_blocks) {}
  [[nodiscard]] __device__ uint32_t begin(uint32_t block) const {
    return part * block + min(block, rest);
  }
  /// The block in whose share x lies.
  [[nodiscard]] __device__ uint32_t owner(uint32_t x) const {
    const uint32_t large = rest * (part + 1);
    return x < large ? x / (part + 1) : rest + (x - large) / max(part, 1u);
  }
};

/// The sum of the values of the threads before, and of all.
struct Sums {
  uint32_t before, all;
};
/// Of a warp, all of whose lanes call.
__device__ inline Sums warp_sums(uint32_t value) {
  const uint32_t lane = threadIdx.x % 32;
  uint32_t sum = value;
  for (uint32_t distance = 1; distance < 32; distance *= 2) {
    const uint32_t other = __shfl_up_sync(~0u, sum, distance);
    if (lane >= distance) sum += other;
  }
  return {sum - value, __shfl_sync(~0u, sum, 31)};
}
/// Of a block, all of whose threads call; scratch [kWarps].
template <int kWarps>
__device__ Sums block_sums(uint32_t value, uint32_t* scratch) {
  const uint32_t warp = threadIdx.x / 32;
  const Sums own = warp_sums(value);
  if (threadIdx.x % 32 == 0) scratch[warp] = own.all;
  __syncthreads();
  Sums result{own.before, 0};
  for (uint32_t w = 0; w < kWarps; ++w) {
    if (w < warp) result.before += scratch[w];
    result.all += scratch[w];
  }
  return result;
}

/// The next runs of a block, in shared memory.
template <int kMaxRuns, int kWarps>
struct WorkList {
  Run runs[kMaxRuns];
  int num_runs;
  uint32_t begin, end, total;  // the share of the block that is not in `runs` yet; of all
  uint32_t first_cost;         // of all sequences before first_seq
  int first_seq;
  uint32_t scratch[kWarps];
};

/// Walks the share of a block, number `block` of `num_blocks`. All threads call.
template <int kWarps, int kMaxRuns>
class WorkWalk {
 public:
  __device__ WorkWalk(const AttentionKernelParams& p, WorkList<kMaxRuns, kWarps>& list,
                      int rows_of_unit, uint32_t block, uint32_t num_blocks)
      : p_(p), list_(list), rows_of_unit_(rows_of_unit), block_(block), num_blocks_(num_blocks) {}

  /// Fills the list; false where there is no more. Nothing of the list is in use.
  __device__ bool next() {
    if (is_first_ && p_.num_seqs > 32) find_share();
    if (threadIdx.x < 32) list_runs();
    is_first_ = false;
    __syncthreads();
    return list_.num_runs > 0;
  }

  /// The block in whose share the work before which `cost` lies begins.
  [[nodiscard]] __device__ uint32_t owner(uint32_t cost) const {
    return Shares(list_.total, num_blocks_).owner(cost);
  }

 private:
  __device__ void take_share(uint32_t total) {
    const Shares shares(total, num_blocks_);
    list_.total = total;
    list_.begin = shares.begin(block_);
    list_.end = shares.begin(block_ + 1);
  }

  /// Of more sequences than a warp has lanes: finds the one in which the block's share begins.
  __device__ __noinline__ void find_share() {
    constexpr int kThreads = 32 * kWarps;
    const int count = (p_.num_seqs + kThreads - 1) / kThreads;
    const int first = min(static_cast<int>(threadIdx.x) * count, p_.num_seqs);
    const int end = min(first + count, p_.num_seqs);
    uint32_t sum = 0;
    for (int seq = first; seq < end; ++seq) sum += sequence_work(p_, seq, rows_of_unit_).cost();
    const Sums cost = block_sums<kWarps>(sum, list_.scratch);
    const uint32_t begin = Shares(cost.all, num_blocks_).begin(block_);
    if (threadIdx.x == 0) take_share(cost.all);
    if (cost.before <= begin && begin < cost.before + sum) {
      uint32_t before = cost.before;
      int seq = first;
      for (;; ++seq) {
        const uint32_t own = sequence_work(p_, seq, rows_of_unit_).cost();
        if (begin < before + own) break;
        before += own;
      }
      list_.first_seq = seq;
      list_.first_cost = before;
    }
    __syncthreads();
  }

  /// One warp, each lane the runs of a sequence, until there is one.
  __device__ __noinline__ void list_runs() {
    bool has_share = !is_first_ || p_.num_seqs > 32;
    int first_seq = has_share ? list_.first_seq : 0;
    uint32_t first_cost = has_share ? list_.first_cost : 0;
    uint32_t begin = has_share ? list_.begin : 0, end = has_share ? list_.end : 0;
    int num_runs = 0;
    while (num_runs == 0 && (!has_share || begin < end)) {
      const int seq = first_seq + static_cast<int>(threadIdx.x);
      SequenceWork work;
      if (seq < p_.num_seqs) work = sequence_work(p_, seq, rows_of_unit_);
      const Sums cost = warp_sums(work.cost());
      if (!has_share) {
        has_share = true;
        if (threadIdx.x == 0) take_share(cost.all);
        __syncwarp();
        begin = list_.begin;
        end = list_.end;
        if (begin == end) break;
      }
      const bool is_shared = p_.partials != nullptr;
      const uint32_t before = first_cost + cost.before, n = max(work.num_segments, 1u);
      const uint32_t from = begin > before ? work.first_segment_from(begin - before, is_shared) : 0;
      const uint32_t to = end > before ? work.first_segment_from(end - before, is_shared) : 0;
      const uint32_t own = from < to ? (to - 1) / n - from / n + 1 : 0;
      const Sums runs = warp_sums(own);
      num_runs = static_cast<int>(min(runs.all, uint32_t{kMaxRuns}));
      uint32_t at = from;
      for (uint32_t i = runs.before; i < min(runs.before + own, uint32_t{kMaxRuns}); ++i) {
        const uint32_t unit = at / n, first = at - unit * n;
        list_.runs[i] = make_run(work, seq, unit, first, min(to - unit * n, n), before);
        at = (unit + 1) * n;
      }
      __syncwarp();  // all have read list_.begin and list_.end
      const bool is_full = runs.all >= kMaxRuns;
      if (is_full ? runs.before < kMaxRuns && runs.before + own >= kMaxRuns : threadIdx.x == 0) {
        list_.first_seq = is_full ? seq : first_seq + 32;
        list_.first_cost = is_full ? before : first_cost + cost.all;
        const uint32_t next = is_full ? before + at / n * work.unit_cost : first_cost + cost.all;
        list_.begin = min(next, end);
      }
      __syncwarp();
      first_seq = list_.first_seq;
      first_cost = list_.first_cost;
      begin = list_.begin;
    }
    if (threadIdx.x == 0) list_.num_runs = num_runs;
  }

  __device__ Run make_run(const SequenceWork& work, int seq, uint32_t unit, uint32_t first,
                          uint32_t last, uint32_t cost_before) const {
    Run run;
    const uint32_t row_tile = unit / static_cast<uint32_t>(p_.num_kv_heads);
    run.first_page = work.first_page;
    run.seq = seq;
    run.kv_head = static_cast<int>(unit - row_tile * p_.num_kv_heads);
    run.first_row = static_cast<int>(row_tile) * rows_of_unit_;
    run.first_token = work.first_token;
    run.q_len = work.q_len;
    run.kv_len = work.kv_len;
    run.first_key = work.first_key;
    run.first_tile = static_cast<int>(first) * work.segment / kTileKeys;
    run.begin = work.begin + static_cast<int>(first) * work.segment;
    run.end = min(work.begin + static_cast<int>(last) * work.segment, work.kv_len);
    run.segment = work.segment;
    run.first_segment = first;
    run.end_segment = last;
    run.num_segments = work.num_segments;
    run.cost_before = cost_before + unit * work.unit_cost;
    run.segment_cost = work.segment_cost;
    return run;
  }

  const AttentionKernelParams& p_;
  WorkList<kMaxRuns, kWarps>& list_;
  int rows_of_unit_;
  uint32_t block_, num_blocks_;
  bool is_first_ = true;
};

}  // namespace heddle::cuda
