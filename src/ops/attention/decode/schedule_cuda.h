#pragma once

// Which block computes what in decode, found on the device from the lengths alone.
//
// A unit is a kv head of a sequence with up to 8, 16 or 32 of its rows of q: heads of its query, or
// of all queries of a bundle. The length of a sequence decides how its units are cut into segments.
// All segments of all units lie on one line, as long as their costs (tiles of keys, and
// kSegmentCost for each segment), and blocks cut the line into equal pieces. A segment belongs to
// the piece in which it begins:
//
//   costs   0         25         50        75   ...
//   units   |== unit 0 ==|== unit 1 ==|== unit 2 ==|   of sequence 0, then of sequence 1, ...
//   segments|==0==|==1===|==0==|==1===|==0==|==1===|
//   blocks  |--- 0 ---|--- 1 ---|--- 2 ---|--- 3 ---|
//
// Block 0 has both segments of unit 0; block 1 those of unit 1; block 2 has segment 0 of unit 2,
// and block 3 segment 1: they share that unit.

#include <cstdint>

#include "cuda/cluster_cuda.h"
#include "cuda/divide_cuda.h"

#include "core/math.h"
#include "ops/attention/decode/decode_params.h"
#include "ops/attention/paged/paged_kv_cuda.h"

namespace heddle::cuda::attention::decode {

/// The keys of a sequence and how they are cut. One of which the table is wrong has none.
struct SequenceCut {
  int64_t first_page;     // -1: the table is wrong
  int kv_len, first_key;  // the window hides keys before first_key
  int segment;            // keys of a segment; the first begins with the tile of first_key
  uint32_t unit_cost;
  int first_query;  // of a bundle: kv_len is that of its last query
  uint16_t num_segments, num_queries;

  [[nodiscard]] __device__ int begin() const { return first_tile_of(first_key); }
  [[nodiscard]] __device__ uint32_t segment_cost() const {
    return static_cast<uint32_t>(segment / kTileKeys) + kSegmentCost;
  }
};

/// Of one query. kMultiple: of keys, see call/decode_cut.h.
template <int kMultiple>
__device__ SequenceCut cut_keys(const DecodeLaunchParams& p, int query,
                                const SequencePages& pages) {
  SequenceCut cut;
  cut.first_query = query;
  cut.num_queries = 1;
  cut.first_page = pages.first_page;
  cut.kv_len = pages.kv_len;
  cut.first_key = first_seen_key(pages.kv_len, p.window_left);
  const int length = pages.kv_len - cut.begin();
  cut.segment = segment_keys(length, kMultiple);
  const uint32_t num_segments =
      max(ceil_div_small(ceil_div(static_cast<uint32_t>(length), kMultiple),
                         static_cast<uint32_t>(cut.segment) / kMultiple),
          1u);
  cut.num_segments = static_cast<uint16_t>(num_segments);
  cut.unit_cost = static_cast<uint32_t>(ceil_div(length, kTileKeys)) + num_segments * kSegmentCost;
  return cut;
}

/// Of all queries of bundle `i`: as the last one is cut. Those before it must be cut alike, with
/// one key less each; else the table is wrong. A bundle without queries costs nothing.
template <int kMultiple>
__device__ __noinline__ SequenceCut cut_bundle(const DecodeLaunchParams& p, int i) {
  const int64_t begin = p.bundle_indptr[i], end = p.bundle_indptr[i + 1], count = end - begin;
  const bool is_right = begin >= 0 && count >= 0 && count <= p.max_bundle && end <= p.num_tokens;
  if (!is_right || count == 0) {
    SequenceCut cut = cut_keys<kMultiple>(p, 0, {is_right ? 0 : -1, 0});
    cut.num_queries = 0;
    if (is_right) cut.unit_cost = 0;  // else there is something to report
    return cut;
  }
  const auto query = static_cast<int>(begin), num_before = static_cast<int>(count) - 1;
  const SequencePages pages = sequence_pages(p.kv, query + num_before);
  SequenceCut cut = cut_keys<kMultiple>(p, query, pages);
  if (num_before > 0) {
    const SequencePages of_first = sequence_pages(p.kv, query);
    const SequenceCut first = cut_keys<kMultiple>(p, query, of_first);
    const bool are_alike = first.kv_len == cut.kv_len - num_before && !of_first.is_wrong() &&
                           first.begin() == cut.begin() && first.segment == cut.segment;
    if (!are_alike) cut = cut_keys<kMultiple>(p, query, {-1, 0});
    cut.first_key = first.first_key;
  }
  cut.num_queries = static_cast<uint16_t>(num_before + 1);
  return cut;
}
template <int kMultiple>
__device__ SequenceCut cut_sequence(const DecodeLaunchParams& p, int seq) {
  if (p.bundle_indptr.is_given()) return cut_bundle<kMultiple>(p, seq);
  return cut_keys<kMultiple>(p, seq, sequence_pages(p.kv, seq));
}
/// The same to shared memory, by a warp: for sequences beyond the window of cuts.
template <int kMultiple>
__device__ __noinline__ void put_overflow_cut(const DecodeLaunchParams& p, int seq,
                                              SequenceCut& to) {
  const SequenceCut cut = cut_sequence<kMultiple>(p, seq);
  __syncwarp();
  if (threadIdx.x % 32 == 0) to = cut;
  __syncwarp();
}

/// A segment. The end of the work is segment 0 of a sequence after the last one.
struct WorkPlace {
  int seq;
  uint32_t unit, segment;
};

/// Segments [first, end) of one unit.
struct Run {
  const SequenceCut* cut;  // in shared memory
  int seq;
  uint32_t unit;
  uint32_t first, end;
  uint32_t cost_before;  // of all sequences before this one

  [[nodiscard]] __device__ int begin_key() const {
    return cut->begin() + static_cast<int>(first) * cut->segment;
  }
  [[nodiscard]] __device__ int end_key() const {
    return min(cut->begin() + static_cast<int>(end) * cut->segment, cut->kv_len);
  }
  [[nodiscard]] __device__ bool is_whole() const { return end - first == cut->num_segments; }
};

/// Tiles of a warp in one run: those at position, position + 64, ... before end.
struct TileBatch {
  int position, end;
  int kv_len, first_key;
};

/// The work of a block, in shared memory.
template <int kWarps_, int kMultiple_>
struct Schedule {
  static constexpr int kWarps = kWarps_, kMultiple = kMultiple_;
  static constexpr int kThreads = 32 * kWarps, kWindow = kThreads;
  SequenceCut cuts[kWindow];             // of the sequences base, base + 1, ...
  SequenceCut overflow_cuts[kWarps][3];  // of sequences beyond: those that a warp is at
  TileBatch next[kWarps];                // the next tiles of each warp
  Run runs[kWarps][2];  // that the two walks of a warp are at; without a cut at the end
  WorkPlace first, end;
  int base;
  uint32_t cost_before;  // of all sequences before first.seq
  uint32_t size;         // cost of a block's piece
  bool is_of_cluster;    // blocks of a cluster have one segment each, of one unit
  uint32_t sums[kWarps];
  int alike[kWarps];  // the length that all sequences of a warp's lanes have; -1: they differ
  uint32_t max_segments[kWarps];  // of a sequence of a warp's lanes
  int end_seq[kWarps];            // BlockCosts::end_seq of a warp's lanes

  /// The block that has the segment which begins at `cost`.
  [[nodiscard]] __device__ uint32_t block_of(uint32_t cost) const {
    return divide_small(cost, size);
  }
};

/// The first segment of a sequence that begins at `cost` or later. Without memory to share units
/// in, the first unit that does.
__device__ inline WorkPlace place_at(const DecodeLaunchParams& p, const SequenceCut& cut,
                                     uint32_t num_units, int seq, uint32_t cost) {
  uint32_t unit = divide_small(cost, cut.unit_cost);
  const uint32_t rest = cost - unit * cut.unit_cost;
  uint32_t segment = ceil_div_small(rest, cut.segment_cost());
  if (segment >= cut.num_segments || (p.partials == nullptr && segment > 0)) {
    ++unit;
    segment = 0;
  }
  if (unit == num_units) return {seq + 1, 0, 0};
  return {seq, unit, segment};
}

/// Finds where a block's work begins and ends, if that is in the thread's sequence. `before`: the
/// cost of all sequences before it.
template <int kWarps, int kMultiple>
__device__ void find_places(const DecodeLaunchParams& p, uint32_t begin, uint32_t end,
                            uint32_t before, int seq, const SequenceCut& cut,
                            Schedule<kWarps, kMultiple>& s) {
  const uint32_t after = before + cut.unit_cost * p.num_units;
#pragma unroll 1
  for (int i = 0; i < 2; ++i) {
    const uint32_t cost = i == 0 ? begin : end;
    if (cost < before || cost >= after) continue;
    const WorkPlace place = place_at(p, cut, p.num_units, seq, cost - before);
    if (i == 0) {
      s.first = place;
      s.cost_before = place.seq == seq ? before : after;
    } else {
      s.end = place;
    }
  }
}
/// The cost of a thread's sequences, of which there are several where a batch has more sequences
/// than a block has threads. is_alike: all are as long as the first. `end`: after the last one that
/// costs something.
struct ThreadCosts {
  uint32_t sum;
  bool is_alike;
  int end;
};
template <int kMultiple>
__device__ __noinline__ ThreadCosts sum_costs(const DecodeLaunchParams& p, int seq, int end) {
  const SequenceCut first = cut_sequence<kMultiple>(p, seq);
  ThreadCosts costs{first.unit_cost * p.num_units, true, first.unit_cost > 0 ? seq + 1 : 0};
  while (++seq < end) {
    const SequenceCut cut = cut_sequence<kMultiple>(p, seq);
    if (cut.unit_cost == 0) continue;
    costs.sum += cut.unit_cost * p.num_units;
    costs.is_alike &= cut.kv_len == first.kv_len;
    costs.end = seq + 1;
  }
  return costs;
}
template <int kWarps, int kMultiple>
__device__ __noinline__ void find_overflow_places(const DecodeLaunchParams& p, uint32_t begin,
                                                  uint32_t end, uint32_t before, int seq, int last,
                                                  Schedule<kWarps, kMultiple>& s) {
  for (; seq < last; ++seq) {
    const SequenceCut cut = cut_sequence<kMultiple>(p, seq);
    find_places(p, begin, end, before, seq, cut, s);
    before += cut.unit_cost * p.num_units;
  }
}

/// The cost of the sequences of the threads before, and of all. are_alike: all sequences have one
/// length. max_segments: of the first sequence of a thread. end_seq: after the last sequence that
/// costs something.
struct BlockCosts {
  uint32_t before, all;
  bool are_alike;
  uint32_t max_segments;
  int end_seq;
};
/// Sums the costs of all threads. own: those of the thread's `count` sequences, the first of which
/// is cut so. All threads call.
template <int kWarps, int kMultiple>
__device__ BlockCosts add_costs(const DecodeLaunchParams& p, const ThreadCosts& own,
                                const SequenceCut& cut, int count, Schedule<kWarps, kMultiple>& s) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  BlockCosts costs{own.sum, 0, true, 0, 0};
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const uint32_t other = __shfl_up_sync(~0u, costs.before, distance);
    if (lane >= distance) costs.before += other;
  }
  if (lane == 31) s.sums[warp] = costs.before;
  costs.before -= own.sum;
  const int first_len = __shfl_sync(~0u, cut.kv_len, 0);
  const bool in_range = thread * count < p.num_seqs && cut.unit_cost > 0;
  const bool is_alike = __all_sync(~0u, own.is_alike && (cut.kv_len == first_len || !in_range));
  const uint32_t max_segments = __reduce_max_sync(~0u, cut.num_segments);
  const int end_seq = __reduce_max_sync(~0u, own.end);
  if (lane == 0) {
    s.alike[warp] = is_alike ? first_len : -1;
    s.max_segments[warp] = max_segments;
    s.end_seq[warp] = end_seq;
  }
  __syncthreads();
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp) costs.before += s.sums[w];
    costs.all += s.sums[w];
    costs.end_seq = max(costs.end_seq, s.end_seq[w]);
    costs.max_segments = max(costs.max_segments, s.max_segments[w]);
  }
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    costs.are_alike &= s.alike[w] == s.alike[0] || 32 * w * count >= costs.end_seq;
  }
  costs.are_alike &= s.alike[0] >= 0;
  return costs;
}

/// What a block has to do. kIdleInCluster: nothing, but it meets its cluster, see
/// idle_in_cluster().
enum class BlockWork { kNone, kSegments, kIdleInCluster };

/// Work of a cluster, where no unit has more segments than a cluster has blocks: cluster c has unit
/// c, and its block r has segment r. Clusters after the last unit have none. All threads call.
template <int kWarps, int kMultiple>
__device__ BlockWork take_segment(const DecodeLaunchParams& p, Schedule<kWarps, kMultiple>& s) {
  const uint32_t unit = blockIdx.x / p.cluster_size, rank = cluster_rank();
  const uint32_t seq = unit / p.num_units;
  if (seq >= static_cast<uint32_t>(p.num_seqs)) return BlockWork::kNone;
  if (threadIdx.x == 0) {
    s.is_of_cluster = true;
    s.base = 0;
    s.cost_before = 0;
    s.first = {static_cast<int>(seq), unit - seq * p.num_units, rank};
    s.end = {s.first.seq, s.first.unit, rank + 1};
  }
  __syncthreads();
  return rank < s.cuts[seq].num_segments ? BlockWork::kSegments : BlockWork::kIdleInCluster;
}

/// Finds the work of block `block` of `num_blocks`. is_speculative: the kernel in front may still
/// write the table. All threads call.
template <int kWarps, int kMultiple>
__device__ BlockWork partition_work(const DecodeLaunchParams& p, uint32_t block,
                                    uint32_t num_blocks, bool is_speculative,
                                    Schedule<kWarps, kMultiple>& s) {
  constexpr int kThreads = 32 * kWarps;
  const int thread = static_cast<int>(threadIdx.x);
  const bool has_overflow = p.num_seqs > kThreads;
  const int count = has_overflow ? ceil_div(p.num_seqs, kThreads) : 1;
  const int seq = thread * count, last = min(seq + count, p.num_seqs);
  ThreadCosts own{0, true, 0};
  SequenceCut cut = {};
  if (seq < last) {
    cut = is_speculative ? cut_keys<kMultiple>(p, seq, stale_pages(p.kv, seq))
                         : cut_sequence<kMultiple>(p, seq);
    own.sum = cut.unit_cost * p.num_units;
    own.end = cut.unit_cost > 0 ? seq + 1 : 0;
    if (has_overflow) own = sum_costs<kMultiple>(p, seq, last);
    s.cuts[thread] = cut;
  }
  const auto [before, all, are_alike, max_segments, end_seq] = add_costs(p, own, cut, count, s);
  if (!has_overflow && max_segments > 1 && max_segments <= cluster_size()) {
    return take_segment(p, s);
  }
  uint32_t size = ceil_div(all, num_blocks);
  if (are_alike) {
    // Round pieces up to whole units, or whole segments, so that fewer states are merged.
    const uint32_t unit = s.cuts[0].unit_cost;
    const uint32_t step = 2 * size >= unit ? unit : s.cuts[0].segment_cost();
    size = round_up(size, step);
  }
  const auto begin = static_cast<uint32_t>(min(uint64_t{block} * size, uint64_t{all}));
  const uint32_t end = begin + min(size, all - begin);
  if (begin == end) return BlockWork::kNone;
  if (thread == 0) {
    s.is_of_cluster = false;
    s.size = size;
    s.base = 0;
    if (end == all) s.end = {end_seq, 0, 0};
  }
  if (begin < before + own.sum && end >= before) {
    if (has_overflow) {
      find_overflow_places(p, begin, end, before, seq, last, s);
    } else {
      find_places(p, begin, end, before, seq, cut, s);
    }
  }
  __syncthreads();
  if (has_overflow) {
    const int in_tile = s.first.seq + thread;
    if (in_tile < p.num_seqs) s.cuts[thread] = cut_sequence<kMultiple>(p, in_tile);
    if (thread == 0) s.base = s.first.seq;
    __syncthreads();
  }
  const WorkPlace a = s.first, b = s.end;
  const bool has_work = a.seq != b.seq || a.unit != b.unit || a.segment != b.segment;
  return has_work ? BlockWork::kSegments : BlockWork::kNone;
}

/// The rows of a unit: heads of q that share a kv head.
struct HeadRows {
  int kv_head, first;  // the first head of its group
};
__device__ inline HeadRows rows_of(const DecodeLaunchParams& p, uint32_t unit) {
  const int part = divide(static_cast<int>(unit), p.by_kv_heads);
  return {static_cast<int>(unit) - part * p.num_kv_heads, part * p.unit_rows};
}

/// Walks through the runs of a block's work. All lanes of a warp go the same way, and the run that
/// the walk is at lies in shared memory, where it takes no registers. A warp has two walks: one for
/// what it copies, one for what it computes. kAlive runs are in use at a time, so a walk keeps that
/// many cuts of sequences beyond the window, in overflow_cuts[warp] from kFirstSlot on.
template <class Work, int kFirstSlot, int kAlive>
class RunWalk {
 public:
  __device__ RunWalk(const DecodeLaunchParams& p, Work& s) : p_(p), s_(s) {}

  __device__ void start() {
    enter({nullptr, s_.first.seq, s_.first.unit, s_.first.segment, 0, s_.cost_before}, true);
  }
  [[nodiscard]] __device__ bool has_run() const { return at().cut != nullptr; }
  [[nodiscard]] __device__ Run run() const { return at(); }
  __device__ void next() {
    Run run = at();
    run.first = 0;
    if (++run.unit == p_.num_units) {
      run.unit = 0;
      ++run.seq;
      run.cost_before += run.cut->unit_cost * p_.num_units;
    }
    const WorkPlace& end = s_.end;
    const bool has_run =
        run.seq < end.seq ||
        (run.seq == end.seq && (run.unit < end.unit || (run.unit == end.unit && end.segment > 0)));
    if (has_run) return enter(run, run.unit == 0);
    run.cut = nullptr;
    put(run);
  }

 private:
  [[nodiscard]] __device__ Run& at() const {
    return s_.runs[threadIdx.x / 32][kFirstSlot == 0 ? 0 : 1];
  }
  __device__ void put(const Run& run) {
    __syncwarp();
    at() = run;  // every lane writes the same
    __syncwarp();
  }
  __device__ void enter(Run run, bool is_other_sequence) {
    const int i = run.seq - s_.base;
    if (i < Work::kWindow) {
      run.cut = &s_.cuts[i];
    } else if (is_other_sequence) {
      SequenceCut& slot = s_.overflow_cuts[threadIdx.x / 32][kFirstSlot + run.seq % kAlive];
      put_overflow_cut<Work::kMultiple>(p_, run.seq, slot);
      run.cut = &slot;
    }
    const bool is_last = run.seq == s_.end.seq && run.unit == s_.end.unit;
    run.end = is_last ? s_.end.segment : run.cut->num_segments;
    put(run);
  }

  const DecodeLaunchParams& p_;
  Work& s_;
};

/// An entry of the table that a lane has read, and what it said. entry is -1 where there was none.
struct AskedPage {
  int64_t entry = -1, id = 0;
};
/// What a lane has read of the table for the first two batches of tiles.
struct FirstPages {
  AskedPage of_batch[2];
};

/// Prefetches element `i` to L2, if there is one.
__device__ inline void prefetch_index(const ConstIndexVector& a, int64_t i, int64_t count) {
  if (i < count) prefetch(a.address(i));
}
/// Prefetches lengths and the page table to L2.
__device__ inline void fetch_tables(const DecodeLaunchParams& p) {
#if __CUDA_ARCH__ >= 900
  constexpr int64_t kEntriesOfLine = 16;  // or more
  const int64_t thread = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  prefetch_index(p.kv.page_indptr, thread, p.num_seqs + 1);
  prefetch_index(p.kv.last_page_len, thread, p.num_seqs);
  prefetch_index(p.kv.pages, thread * kEntriesOfLine, p.kv.table_pages);
#endif
}

/// Whether the first pages of a warp are pages of the pool. A stale table may name others. All
/// lanes call.
__device__ inline bool are_of_pool(const DecodeLaunchParams& p, const FirstPages& first) {
  bool are = true;
  for (const AskedPage& page : first.of_batch) {
    are &= page.entry < 0 || is_page(p.kv, page.id);
  }
  return __all_sync(~0u, are) != 0;
}

/// What the table says, after the wait, of the thread's sequence and of its first pages.
struct TableWords {
  SequenceWords sequence;
  LoadedIndex pages[2];
};
__device__ inline TableWords request_again(const DecodeLaunchParams& p, const FirstPages& first) {
  TableWords now{};
  if (static_cast<int>(threadIdx.x) < p.num_seqs) {
    now.sequence = ask_sequence(p.kv, threadIdx.x);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (first.of_batch[i].entry >= 0) {
      now.pages[i] = load_given(p.kv.pages, first.of_batch[i].entry);
    }
  }
  return now;
}
template <int kWarps, int kMultiple>
__device__ bool is_unchanged(const DecodeLaunchParams& p, const Schedule<kWarps, kMultiple>& share,
                             const FirstPages& first, const TableWords& now) {
  bool is_unchanged = true;
  if (static_cast<int>(threadIdx.x) < p.num_seqs) {
    const SequencePages pages = sequence_pages(p.kv, now.sequence);
    const SequenceCut& cut = share.cuts[threadIdx.x];
    is_unchanged = pages.first_page == cut.first_page && pages.kv_len == cut.kv_len;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const AskedPage& page = first.of_batch[i];
    is_unchanged &= page.entry < 0 || p.kv.pages.value_of(now.pages[i]) == page.id;
  }
  return is_unchanged;
}

}  // namespace heddle::cuda::attention::decode
