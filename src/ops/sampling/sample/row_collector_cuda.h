#pragma once

#include "ops/sampling/sample/row_draw_cuda.h"
#include "ops/sampling/sample/row_search_cuda.h"
#include "ops/sampling/sample/unit_sum_cuda.h"
#include "ops/sampling/sample/unroll_cuda.h"

namespace heddle::cuda::sampling {

/// The first token of the largest logit of a thread, by the first look at a row. kIsLast: it is the
/// last one too.
template <bool kIsLast, class Cluster>
[[nodiscard]] __host__ __device__ LeadingToken leading_of_thread(Cluster& cluster, int rank,
                                                                 int thread) {
  float most = -kInfinity;
  uint32_t id = ~0u;
  cluster.template stream<kIsLast>(rank, thread, [&](const float4& four, uint32_t first) {
    const float largest = largest_of(four);
    if (!(largest > most)) return;
    most = largest;
    id = first + (four.x == most ? 0u : four.y == most ? 1u : four.z == most ? 2u : 3u);
  });
  return LeadingToken(most, id);
}

/// leading() of a greedy row, whose logits are looked at once.
template <class Cluster>
__host__ __device__ void find_leading(Cluster& cluster, int leader) {
  cluster.lead(
      leader, [&](int rank, int thread) { return leading_of_thread<true>(cluster, rank, thread); });
}

/// The largest of all logits, and the bound; for all threads.
template <class Cluster>
[[nodiscard]] __host__ __device__ RowBounds find_bounds(Cluster& cluster) {
  cluster.largest_of_groups(
      [&](int rank, int thread) { return cluster.largest_in_row(rank, thread); });
  return cluster.bounds();
}

/// find_bounds() of what a row needs: with leading(), where that is asked for.
template <class Cluster>
[[nodiscard]] __host__ __device__ RowBounds find_bounds(Cluster& cluster, int leader,
                                                        const RowNeeds& needs) {
  if (!needs.lowest) return find_bounds(cluster);
  cluster.lead_groups(leader, [&](int rank, int thread) {
    return leading_of_thread<false>(cluster, rank, thread);
  });
  return cluster.bounds();
}

/// The least logit above -infinity, of a row that has one.
template <class Cluster>
[[nodiscard]] __host__ __device__ float find_least(Cluster& cluster) {
  cluster.each_in_block([](BlockState& own, int, int thread) {
    if (thread == 0) own.least = ~0u;
  });
  cluster.each([&](BlockState& own, int rank, int thread) {
    uint32_t least = ~0u;
    cluster.tokens(rank, thread, [&](float logit, uint32_t) {
      const uint32_t bits = heddle::sampling::ascending_bits(logit);
      if (logit > -kInfinity && bits < least) least = bits;
    });
    cluster.lower(own.least, least);
  });
  uint32_t least = ~0u;
  HEDDLE_UNROLL
  for (int rank = 0; rank < kMaxBlocks; ++rank) {
    const uint32_t of_block = rank < cluster.num_blocks() ? cluster.of(rank).least : ~0u;
    least = of_block < least ? of_block : least;
  }
  return Places::logit_of_bits(least);
}

/// So many tokens of each block have room at the leader.
[[nodiscard]] __host__ __device__ inline uint32_t room_of_block(int num_blocks) {
  return static_cast<uint32_t>(kInbox / num_blocks);
}

/// collect() for the row of the batch that block `leader` leads, once its bounds are known.
template <class Cluster>
class RowCollector {
 public:
  __host__ __device__ RowCollector(Cluster& cluster, int64_t vocab_size, int leader,
                                   const RowBounds& bounds)
      : cluster_(cluster), vocab_size_(vocab_size), leader_(leader), bounds_(bounds) {}

  /// The bounds, with the least logit that is listed.
  __host__ __device__ RowBounds collect(const RowNeeds& needs) const {
    const float least = needs.list ? list_bound(needs) : bounds_.bound;
    if (needs.list) fill_inbox(least);
    HEDDLE_NO_UNROLL
    for (int i = 0; i < 2; ++i) {  // one copy of the code
      if (i == 0 ? needs.total : needs.one) {
        add_up(i == 1, i == 0 ? needs.scale : heddle::sampling::scale_of(1.0f),
               i == 1 || !needs.one);
      }
    }
    const bool is_released = (needs.total || needs.one) && bounds_.largest < kInfinity;
    if (!is_released) cluster_.end_row();
    return {bounds_.largest, least};
  }

 private:
  [[nodiscard]] __host__ __device__ float list_bound(const RowNeeds& needs) const {
    const float bound = cluster_.bound_of(bounds_, needs.num_groups);
    if (!needs.has_offset) return bound;
    return fmaxf(bound, least_from(double{bounds_.largest} + needs.offset));
  }
  /// look_at(own, rank, logit, id) for all logits of at least `least`.
  template <class F>
  __host__ __device__ void look_from(float least, const F& look_at) const {
    cluster_.run([&](BlockState& own, int rank, int thread) {
      cluster_.fours_from(rank, thread, least, [&](float logit, uint32_t id) {
        if (logit >= least && logit > -kInfinity) look_at(own, rank, logit, id);
      });
    });
  }
  __host__ __device__ void fill_inbox(float bound) const {
    const Places places(vocab_size_);
    const uint32_t room = room_of_block(cluster_.num_blocks());
    look_from(bound, [&](BlockState& own, int rank, float logit, uint32_t id) {
      const uint32_t at = cluster_.add(own.list_sizes[leader_], 1u);
      if (at < room) {
        cluster_.of(leader_).inbox[uint32_t(rank) * room + at] = places.place_of(logit, id);
      }
    });
  }
  __host__ __device__ void add_up(bool of_one, float scale, bool is_last) const {
    const auto units_of_part = [&](int rank, int thread, uint32_t part) {
      if (bounds_.largest == kInfinity) return units_of_infinite(rank, thread, part);
      UnitSum units(bounds_.largest, scale, vocab_size_);
      cluster_.part_fours(
          rank, thread, part,
          [&](const float4& four) {
            units.add(four);
            return false;
          },
          [](float, uint32_t) {}, is_last);
      return units.total();
    };
    if (of_one) {
      cluster_.sum_warps(leader_, units_of_part);
    } else {
      cluster_.sum_segments(leader_, units_of_part);
    }
  }
  /// The units of a thread's logits. Where the largest is infinite, the others have none.
  [[nodiscard]] __host__ __device__ uint64_t units_of_infinite(int rank, int thread,
                                                               uint32_t part) const {
    uint64_t count = 0;
    cluster_.part_fours(
        rank, thread, part, [](const float4& four) { return largest_of(four) == kInfinity; },
        [&](float logit, uint32_t) { count += logit == kInfinity ? 1 : 0; }, false);
    return count << heddle::sampling::fraction_bits(vocab_size_);
  }

  Cluster& cluster_;
  const int64_t vocab_size_;
  const int leader_;
  const RowBounds bounds_;
};

/// The leader's: fetches what all blocks have found for the row.
template <class Cluster>
__host__ __device__ void fetch_counts(Cluster& cluster) {
  const int row = cluster.leader_rank();
  cluster.leader_each([&](BlockState& own, int rank) {
    if (rank >= cluster.num_blocks()) return;
    own.all_list_sizes[rank] = cluster.of(rank).list_sizes[row];
  });
}

/// The leader's, after fetch_counts(): takes the lists of all blocks into its own. The number of
/// tokens, -1 where not all had room.
template <class Cluster>
[[nodiscard]] __host__ __device__ int take_lists(Cluster& cluster) {
  const uint32_t room = room_of_block(cluster.num_blocks());
  uint32_t size = 0, most = 0;
  for (int rank = 0; rank < cluster.num_blocks(); ++rank) {
    const uint32_t of_block = cluster.leader().all_list_sizes[rank];
    size += of_block;
    most = of_block > most ? of_block : most;
  }
  if (most > room) return -1;
  cluster.leader_each([&](BlockState& own, int thread) {
    for (auto at = uint32_t(thread); at < size; at += kRowThreads) {
      uint32_t i = at;
      int rank = 0;
      for (; i >= own.all_list_sizes[rank]; ++rank) i -= own.all_list_sizes[rank];
      own.list[at] = own.inbox[uint32_t(rank) * room + i];
    }
  });
  return static_cast<int>(size);
}

}  // namespace heddle::cuda::sampling
