#pragma once

#include "ops/sampling/sample/row_collector_cuda.h"
#include "ops/sampling/sample/row_draw_cuda.h"
#include "ops/sampling/sample/row_search_cuda.h"
#include "ops/sampling/sample/sample_params.h"
#include "ops/sampling/sample/share_search_cuda.h"
#include "ops/sampling/sample/unit_sum_cuda.h"
#include "ops/sampling/sample/unroll_cuda.h"

// What a Cluster (row_search_cuda.h) does for a row, in three parts:
//
//   collect      all blocks: the largest logit, sums of units, and the few largest tokens, which
//                the row's leader gets
//   finish       the leader: the token, if these are enough
//   search       all blocks again, for rows of which they are not
//
// In addition to what is said there, a Cluster has for it:
//
//   run(f)                 f(own, rank, thread) in every thread, without waiting
//   largest_of_groups(f)   group_maxima of all blocks: the largest f(rank, thread) of a group
//   bounds()               of these, as kGroups says
//   bound_of(bounds, n)    a bound from which on about n groups have logits, or somewhat more
//   stream<kIsLast>(rank, thread, f)   f(four logits, first id) for all of them, as they come; with
//                          kIsLast they are not looked at again
//   lead(leader, f)        that block's segment_units: the largest f(rank, thread) of each warp
//   leading()              the leader's: of these the largest
//   lead_groups(leader, f) lead(leader, f) and largest_of_groups() of the same f
//   largest_in_row(rank, thread)   the largest logit of a thread, -infinity where it has none
//   fours_from(rank, thread, least, g)   g(logit, id) for those of at least `least`, and others
//   part_fours(rank, thread, part, f, g, is_last)   fours() of a part; is_last: the logits are read
//                          no more after it, but for a search
//   sum_segments(leader, f)   that block's segment_units: the sums of f(rank, thread, part)
//   sum_warps(leader, f)   that block's one_units: the same sums over all parts
//   end_row()              the row's logits are read no more, but for a search
//   total(of_one)          the leader's: the sum of segment_units, or of one_units
//   logit(id)              of the row
//   leader_each(f)         f(own, thread) in the threads of the leader, which then see it done

namespace heddle::cuda::sampling {

/// finish() and search() of a row that has a logit above -infinity and is led by
/// cluster.leader_rank().
template <class Cluster>
class RowSampler {
 public:
  __host__ __device__ RowSampler(Cluster& cluster, const RowLayout& layout, int64_t vocab_size,
                                 const RowBounds& bounds, const RowDraw& draw)
      : cluster_(cluster),
        layout_(layout),
        vocab_size_(static_cast<uint32_t>(vocab_size)),
        bounds_(bounds),
        draw_(draw) {}

  /// Whether what was collected is enough; then token() is valid.
  [[nodiscard]] __host__ __device__ bool finish() {
    const RowNeeds needs = needs_of(draw_, vocab_size_, false);
    if (needs.lowest) {
      token_ = cluster_.leading().id();
      return true;
    }
    if (needs.list) fetch_counts(cluster_);
    const uint64_t total = needs.total ? cluster_.total(false) : 0;
    const RowSearch<Cluster> search(cluster_, vocab_size_, bounds_.largest, draw_.scale);
    if (needs.list) return draw_from_list(search, total) || draw_share(search, total);
    draw_by_id(search, total, {});
    return true;
  }

  /// By all blocks; the leader has token() after it.
  __host__ __device__ void search() {
    const RowSearch<Cluster> search(cluster_, vocab_size_, bounds_.largest, draw_.scale,
                                    find_least(cluster_));
    Kept kept;
    uint64_t total = 0;
    HEDDLE_NO_UNROLL
    for (int step = 0; step < 2; ++step) {  // one copy of the code of a search
      SearchTarget target{Kind::kCount, 1};
      if (step == 0) {
        if (draw_.has_top_k(vocab_size_)) {
          target.limit = static_cast<uint64_t>(draw_.top_k);
        } else if (draw_.min_p > 1.0f) {
          continue;
        } else {
          if (draw_.top_p < 1.0f) total = share_total();
          continue;
        }
      } else if (draw_.min_p > 1.0f) {
        // The first token, whatever top_p says.
      } else if (draw_.top_p < 1.0f) {
        target = top_p_of(total);
      } else {
        continue;
      }
      const Decision at = search.find(target);
      total = at.mass.units;
      if (!at.found) continue;
      kept.last_logit = search.places().logit_of(at.range.first);
      kept.last_id = search.places().id_of(at.range.first);
    }
    if (draw_.min_p > 0.0f && !(draw_.min_p > 1.0f)) kept.least = least_from(min_p_bound());
    total = add_up_kept(search, kept);
    if (cluster_.is_leader()) draw_by_id(search, total, kept);
  }

  /// The leader's.
  [[nodiscard]] __host__ __device__ uint32_t token() const { return token_; }

 private:
  using Kind = SearchTarget::Kind;

  /// The tokens that the filters leave: those up to one in the order of choice, not below a logit.
  struct Kept {
    float last_logit = -kInfinity;
    uint32_t last_id = ~0u;
    float least = -kInfinity;

    [[nodiscard]] __host__ __device__ bool has(float logit, uint32_t id) const {
      return (logit > last_logit || (logit == last_logit && id <= last_id)) && logit >= least;
    }
  };

  [[nodiscard]] __host__ __device__ SearchTarget top_p_of(uint64_t kept) const {
    return {Kind::kAtLeast, kept, double{draw_.top_p} * static_cast<double>(kept)};
  }
  [[nodiscard]] __host__ __device__ SearchTarget draw_of_total(uint64_t kept) const {
    return {Kind::kAbove, kept, draw_.u * static_cast<double>(kept)};
  }
  [[nodiscard]] __host__ __device__ double min_p_bound() const {
    return double{bounds_.largest} + draw_.min_p_offset;
  }

  /// Filters and draws by the listed tokens alone, whether they are enough.
  [[nodiscard]] __host__ __device__ bool draw_from_list(const RowSearch<Cluster>& search,
                                                        uint64_t total) {
    const int n = take_lists(cluster_);
    if (n < 0) return false;
    if (n > kFewPairs && is_share()) return draw_from_long_list(search, total, n);
    if (n > kMaxList) return false;
    cluster_.sort(n);
    BlockState& own = cluster_.leader();
    cluster_.scan(
        n, [&](int i) { return search.mass_of(own.list[i]); }, own.sums, nullptr);
    const bool is_complete = bounds_.bound == -kInfinity;
    int count = is_complete ? n : n + 1;  // n + 1: all that are listed, and more
    uint64_t kept = is_complete ? own.sums[n - 1] : total;
    if (draw_.has_top_k(vocab_size_)) {
      if (draw_.top_k <= n) {
        count = draw_.top_k;
        kept = own.sums[count - 1];
      } else if (!is_complete && draw_.top_p < 1.0f) {
        return false;
      }
    }
    if (draw_.top_p < 1.0f) {
      const SearchTarget target = top_p_of(kept);
      const int at = cluster_.count_if(n, [&](int i) {
        return !target.is_reached({own.sums[i], uint64_t(i) + 1});
      });
      if (at < count) count = at + 1;
    }
    if (draw_.min_p > 1.0f) {
      count = 1;
    } else if (draw_.min_p > 0.0f) {
      const double least = min_p_bound();
      const int at = cluster_.count_if(
          n, [&](int i) { return double{search.places().logit_of(own.list[i])} >= least; });
      const bool has_all = is_complete || double{bounds_.bound} <= least_from(least);
      if (at < count && (at < n || has_all)) count = at > 1 ? at : 1;
    }
    if (count > n) return false;
    choose_by_id(search.places(), count);
    return true;
  }
  /// Whether the row has top_p alone, with finite logits.
  [[nodiscard]] __host__ __device__ bool is_share() const {
    const bool has_top_p = draw_.top_p > 0.0f && draw_.top_p < 1.0f;
    return has_top_p && !draw_.has_top_k(vocab_size_) && !(draw_.min_p > 0.0f) &&
           bounds_.largest < kInfinity;
  }
  /// The same with top_p alone, of tokens in any order.
  [[nodiscard]] __host__ __device__ bool draw_from_long_list(const RowSearch<Cluster>& search,
                                                             uint64_t total, int n) {
    BlockState& own = cluster_.leader();
    const ListSearch<Cluster> in_list(cluster_, search, own.list, static_cast<uint32_t>(n));
    const SearchTarget target = top_p_of(total);
    const Decision cut = in_list.find(
        target, 0, ByPlace(search.places(), bounds_.bound, bounds_.largest), ~uint64_t{0});
    if (!cut.found) return false;
    const Decision chosen = in_list.find(draw_of_total(cut.mass.units), 0,
                                         ById(search.places(), vocab_size_), cut.range.first);
    token_ = search.places().id_of(chosen.range.first);
    return chosen.found;
  }
  /// Of a row with top_p alone, from all its tokens; whether it could.
  [[nodiscard]] __host__ __device__ bool draw_share(const RowSearch<Cluster>& search,
                                                    uint64_t total) {
    if (!is_share()) return false;
    ShareSearch<Cluster> share(cluster_, search, layout_, bounds_.largest, draw_.scale);
    const auto cut = share.find(top_p_of(total), draw_.top_p, vocab_size_);
    if (cut.found) {
      draw_by_id(search, cut.units, {cut.logit, cut.id});
    } else {  // total(false) for the search
      cluster_.leader_each([&](BlockState& own, int thread) {
        if (uint32_t(thread) < layout_.num_segments()) {
          own.segment_units[thread] = thread == 0 ? total : 0;
        }
      });
    }
    return cut.found;
  }
  /// Draws from the first `count` listed tokens.
  __host__ __device__ void choose_by_id(const Places& places, int count) {
    BlockState& own = cluster_.leader();
    const SearchTarget target = draw_of_total(own.sums[count - 1]);
    if (count > kFewPairs) return choose_by_sorting(places, count, target);
    const auto units = [&](int i) { return own.sums[i] - (i > 0 ? own.sums[i - 1] : 0); };
    cluster_.pairs(
        count,
        [&](int i, int j) -> uint64_t {
          return places.id_of(own.list[j]) <= places.id_of(own.list[i]) ? units(j) : 0;
        },
        [&](BlockState& its, int i, uint64_t up_to) {
          const bool is_reached = target.is_reached({up_to, 1});
          if (!is_reached || target.is_reached({up_to - units(i), 1})) return;
          its.chosen = places.id_of(its.list[i]);
        });
    token_ = own.chosen;
  }
  __host__ __device__ void choose_by_sorting(const Places& places, int count,
                                             const SearchTarget& target) {
    BlockState& own = cluster_.leader();
    cluster_.leader_each([&](BlockState& its, int thread) {
      if (thread >= count) return;
      const uint64_t place = its.list[thread];
      its.list[thread] = uint64_t{places.id_of(place)} << 32 | places.ascending_of(place);
    });
    cluster_.sort(count);
    const RowSearch<Cluster> search(cluster_, vocab_size_, bounds_.largest, draw_.scale);
    cluster_.scan(
        count,
        [&](int i) {
          const auto bits = static_cast<uint32_t>(own.list[i]);
          return Mass{search.units_of(Places::logit_of_bits(bits)), 1};
        },
        own.sums, nullptr);
    const int at = cluster_.count_if(count, [&](int i) {
      return !target.is_reached({own.sums[i], 1});
    });
    token_ = static_cast<uint32_t>(own.list[at] >> 32);
  }

  /// The leader's: draws from the kept tokens, whose sums by segment it has.
  __host__ __device__ void draw_by_id(const RowSearch<Cluster>& search, uint64_t total,
                                      const Kept& kept) {
    const SearchTarget target = draw_of_total(total);
    BlockState& own = cluster_.leader();
    uint64_t before = 0;
    /// Of n numbers f(i) the first with which the target is reached, n without one.
    const auto first_of = [&](int n, const auto& f) {
      cluster_.scan(
          n,
          [&](int i) {
            return Mass{f(i), 1};
          },
          own.sums, nullptr);
      const int at = cluster_.count_if(n, [&](int i) {
        return !target.is_reached({before + own.sums[i], 1});
      });
      if (at > 0) before += own.sums[at - 1];
      return at;
    };
    const int segment = first_of(static_cast<int>(layout_.num_segments()),
                                 [&](int i) { return own.segment_units[i]; });
    const uint32_t first = layout_.first_id_of(static_cast<uint32_t>(segment));
    HEDDLE_NO_UNROLL
    for (uint32_t id = first; id < vocab_size_; id += kRowThreads) {
      cluster_.leader_each([](BlockState&, int) {});  // all have read the sums
      const int at = first_of(kRowThreads, [&](int i) -> uint64_t {
        const uint32_t token = id + static_cast<uint32_t>(i);
        if (token >= vocab_size_) return 0;
        const float logit = cluster_.logit(token);
        return kept.has(logit, token) ? search.units_of(logit) : 0;
      });
      if (at == kRowThreads) continue;
      token_ = id + static_cast<uint32_t>(at);
      return;
    }
  }
  /// The leader's segment_units of the kept tokens, and their sum for all.
  [[nodiscard]] __host__ __device__ uint64_t add_up_kept(const RowSearch<Cluster>& search,
                                                         const Kept& kept) {
    cluster_.sum_segments(cluster_.leader_rank(), [&](int rank, int thread, uint32_t part) {
      UnitSum units(bounds_.largest, draw_.scale, vocab_size_);
      uint64_t of_infinite = 0;  // UnitSum has none
      const bool is_infinite = bounds_.largest == kInfinity;
      cluster_.part_fours(
          rank, thread, part, [](const float4&) { return true; },
          [&](float logit, uint32_t id) {
            const bool is_kept = kept.has(logit, id);
            if (is_infinite) {
              of_infinite += is_kept ? search.units_of(logit) : 0;
            } else {
              units.add(is_kept ? logit : -kInfinity);
            }
          },
          false);
      return is_infinite ? of_infinite : units.total();
    });
    cluster_.meet();
    return share_total();
  }
  /// The sum of the leader's segment_units, for all.
  [[nodiscard]] __host__ __device__ uint64_t share_total() {
    if (cluster_.is_leader()) cluster_.publish({true, {}, {cluster_.total(false), 0}});
    cluster_.meet();
    return cluster_.decision().mass.units;
  }

  Cluster& cluster_;
  const RowLayout& layout_;
  const uint32_t vocab_size_;
  const RowBounds bounds_;
  const RowDraw& draw_;
  uint32_t token_ = ~0u;
};

/// By all blocks: token_logprobs' k most likely tokens of a row in order, write(i, place) for each.
template <class Cluster, class Write>
__host__ __device__ void list_top(Cluster& cluster, const RowSearch<Cluster>& search, int64_t k,
                                  const Write& write) {
  uint64_t next = 0;
  for (int64_t done = 0; done < k;) {
    const PlaceRange batch = search.next_batch(next).range;
    search.template gather<true>(batch);
    if (cluster.is_leader()) {
      const uint32_t size = search.merge_lists();
      cluster.leader_each([&](BlockState& own, int thread) {
        if (uint32_t(thread) < size && done + thread < k) write(done + thread, own.list[thread]);
      });
      cluster.publish({true, {}, {0, size}});
    }
    cluster.meet();
    done += static_cast<int64_t>(cluster.decision().mass.count);
    next = batch.last + 1;
  }
}

}  // namespace heddle::cuda::sampling
