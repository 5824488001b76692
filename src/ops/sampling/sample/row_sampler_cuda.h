#pragma once

#include "cuda/philox_cuda.h"

#include "ops/sampling/sample/row_search_cuda.h"
#include "ops/sampling/sample/sample_params.h"
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
//   tighter_bound(bounds, n)   a bound that is higher, if at least n groups have logits from it on
//   has_from(rank, thread, least)   whether the thread has a logit of at least `least`
//   sum(leader, i, f)      that block's warp_units[i]: the sums of f(rank, thread) of each warp
//   end_row()              the row's logits are read no more, but for a search
//   total(i)               the leader's: the sum of warp_units[i]
//   logit(id)              of the row
//   leader_each(f)         f(own, thread) in the threads of the leader, which then see it done

namespace heddle::cuda::sampling {

using heddle::sampling::kInfinity;

/// How a row draws; temperature > 0.
struct RowDraw {
  float temperature;
  int32_t top_k;
  float top_p, min_p;
  double u;
  float scale;          // of the weights
  double min_p_offset;  // for min_p in (0, 1]

  [[nodiscard]] __host__ __device__ bool has_top_k(int64_t vocab_size) const {
    return top_k > 0 && top_k < vocab_size;
  }
};

/// The options of a row; greedy without a positive temperature.
[[nodiscard]] __host__ __device__ inline RowDraw draw_of(const SampleParams& p, int64_t row) {
  if (p.temperature.data == nullptr) return {};
  RowDraw draw{p.temperature[row], p.top_k[row], p.top_p[row], p.min_p[row], 0.0, 0.0f, 0.0};
  const int64_t seed = p.seed[row], step = p.step[row];
  if (!(draw.temperature > 0.0f)) return {};
  constexpr uint32_t kSample = 0;  // cpu::Draw
  draw.u = uniform_draw(seed, step, kSample, 0);
  draw.scale = heddle::sampling::scale_of(draw.temperature);
  if (draw.min_p > 0.0f && !(draw.min_p > 1.0f)) {
    draw.min_p_offset = heddle::sampling::min_p_offset(draw.temperature, draw.min_p);
  }
  return draw;
}

/// What the leader of a row wants from all blocks.
struct RowNeeds {
  bool lowest = false;              // the lowest token of the largest logit
  bool list = false;                // the tokens that are not below the bound
  int num_groups = 0;               // so many groups have such tokens
  bool total = false, one = false;  // sums of units: with `scale`, and at temperature 1
  float scale = 0.0f;
};

[[nodiscard]] __host__ __device__ inline RowNeeds needs_of(const RowDraw& draw, int64_t vocab_size,
                                                           bool wants_logprob) {
  if (!(draw.temperature > 0.0f)) return {.lowest = true, .one = wants_logprob};
  const bool has_top_p = draw.top_p<1.0f, has_min_p = draw.min_p> 0.0f;
  const bool has_top_k = draw.has_top_k(vocab_size);
  const bool total = !has_top_k && (has_top_p || !has_min_p);
  // Some 90 tokens, or 350 where it is not known how many the filters need.
  const int num_groups = has_top_k ? kGroups / 2 : kGroups * 15 / 16;
  return {.list = has_top_k || has_top_p || has_min_p,
          .num_groups = num_groups,
          .total = total,
          .one = wants_logprob && !(total && draw.temperature == 1.0f),
          .scale = draw.scale};
}

/// The largest of all logits, and the bound; for all threads.
template <class Cluster>
[[nodiscard]] __host__ __device__ RowBounds find_bounds(Cluster& cluster) {
  cluster.largest_of_groups([&](int rank, int thread) {
    float most = -kInfinity;
    cluster.fours(
        rank, thread,
        [&](const float4& four) {
          most = fmaxf(most, largest_of(four));
          return false;
        },
        [](float, uint32_t) {});
    return most;
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
  return static_cast<uint32_t>(kMaxList / num_blocks);
}

/// collect() for the row of the batch that block `leader` leads, once its bounds are known.
template <class Cluster>
class RowCollector {
 public:
  __host__ __device__ RowCollector(Cluster& cluster, int64_t vocab_size, int leader,
                                   const RowBounds& bounds)
      : cluster_(cluster), vocab_size_(vocab_size), leader_(leader), bounds_(bounds) {}

  __host__ __device__ void collect(const RowNeeds& needs) const {
    if (needs.lowest) find_lowest();
    if (needs.list) fill_inbox(cluster_.tighter_bound(bounds_, needs.num_groups));
    HEDDLE_NO_UNROLL
    for (int i = 0; i < 2; ++i) {  // one copy of the code
      if (i == 0 ? needs.total : needs.one) {
        add_up(i, i == 0 ? needs.scale : heddle::sampling::scale_of(1.0f), i == 1 || !needs.one);
      }
    }
    const bool is_released = (needs.total || needs.one) && bounds_.largest < kInfinity;
    if (!is_released) cluster_.end_row();
  }

 private:
  /// look_at(own, rank, logit, id) for all logits of at least `least`.
  template <class F>
  __host__ __device__ void look_from(float least, const F& look_at) const {
    cluster_.run([&](BlockState& own, int rank, int thread) {
      if (!cluster_.has_from(rank, thread, least)) return;  // true for whole warps
      cluster_.fours(
          rank, thread, [&](const float4& four) { return largest_of(four) >= least; },
          [&](float logit, uint32_t id) {
            if (logit >= least && logit > -kInfinity) look_at(own, rank, logit, id);
          });
    });
  }
  __host__ __device__ void find_lowest() const {
    look_from(bounds_.largest, [&](BlockState& own, int, float, uint32_t id) {
      cluster_.lower(own.lowest_ids[leader_], id);
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
  __host__ __device__ void add_up(int which, float scale, bool is_last) const {
    cluster_.sum(leader_, which, [&](int rank, int thread) {
      if (bounds_.largest == kInfinity) return units_of_infinite(rank, thread);
      UnitSum units(bounds_.largest, scale, vocab_size_);
      cluster_.fours(
          rank, thread,
          [&](const float4& four) {
            units.add(four);
            return false;
          },
          [](float, uint32_t) {}, is_last);
      return units.total();
    });
  }
  /// The units of all logits of a thread. Where the largest is infinite, the others have none.
  [[nodiscard]] __host__ __device__ uint64_t units_of_infinite(int rank, int thread) const {
    uint64_t count = 0;
    cluster_.fours(
        rank, thread, [](const float4& four) { return largest_of(four) == kInfinity; },
        [&](float logit, uint32_t) { count += logit == kInfinity ? 1 : 0; });
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
    own.all_lowest_ids[rank] = cluster.of(rank).lowest_ids[row];
  });
}

/// The leader's, after fetch_counts(): takes the lists of all blocks into its own, sorted. The
/// number of tokens, -1 where not all had room.
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
    auto i = static_cast<uint32_t>(thread);
    for (int rank = 0; rank < cluster.num_blocks(); ++rank) {
      if (i < own.all_list_sizes[rank]) {
        own.list[thread] = own.inbox[uint32_t(rank) * room + i];
        break;
      }
      i -= own.all_list_sizes[rank];
    }
  });
  cluster.sort(static_cast<int>(size));
  return static_cast<int>(size);
}

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
    fetch_counts(cluster_);
    if (!(draw_.temperature > 0.0f)) {
      for (int rank = 0; rank < cluster_.num_blocks(); ++rank) {
        const uint32_t lowest = cluster_.leader().all_lowest_ids[rank];
        token_ = lowest < token_ ? lowest : token_;
      }
      return true;
    }
    const RowNeeds needs = needs_of(draw_, vocab_size_, false);
    const uint64_t total = needs.total ? cluster_.total(0) : 0;
    const RowSearch<Cluster> search(cluster_, vocab_size_, bounds_.largest, draw_.scale);
    if (needs.list) return draw_from_list(search, total);
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
    BlockState& own = cluster_.leader();
    cluster_.scan(
        n, [&](int i) { return search.mass_of(own.list[i]); }, own.sums, nullptr);
    const bool is_complete = bounds_.bound == -kInfinity;
    int count = is_complete ? n : n + 1;  // n + 1: all that are listed, and more
    uint64_t kept = is_complete ? own.sums[n - 1] : total;
    if (draw_.has_top_k(vocab_size_)) {
      if (draw_.top_k > n && !is_complete) return false;
      if (draw_.top_k < count) count = draw_.top_k;
      kept = own.sums[count - 1];
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
      if (at < count && (at < n || is_complete)) count = at > 1 ? at : 1;
    }
    if (count > n) return false;
    choose_by_id(search.places(), count);
    return true;
  }
  /// Draws from the first `count` listed tokens.
  __host__ __device__ void choose_by_id(const Places& places, int count) {
    const SearchTarget target = draw_of_total(cluster_.leader().sums[count - 1]);
    cluster_.leader_each([&](BlockState& own, int thread) {
      if (thread >= count) return;
      const uint32_t id = places.id_of(own.list[thread]);
      uint64_t up_to = 0, before = 0, units_before = 0;
      for (int i = 0; i < count; ++i) {
        const uint64_t sum = own.sums[i];
        const uint32_t other = places.id_of(own.list[i]);
        if (other <= id) up_to += sum - units_before;
        if (other < id) before += sum - units_before;
        units_before = sum;
      }
      if (target.is_reached({up_to, 1}) && !target.is_reached({before, 1})) own.chosen = id;
    });
    token_ = cluster_.leader().chosen;
  }

  /// The least f32 that is not below `bound`.
  [[nodiscard]] static __host__ __device__ float least_from(double bound) {
    const auto near = static_cast<float>(bound);
    return double{near} < bound ? nextafterf(near, kInfinity) : near;
  }
  /// The leader's: draws from the kept tokens, whose warps' sums it has.
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
    const int warp =
        first_of(cluster_.num_blocks() * kRowWarps, [&](int i) { return own.warp_units[0][i]; });
    const uint32_t first = static_cast<uint32_t>(warp) * layout_.ids_per_warp();
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
  /// The leader's warp_units[0] of the kept tokens, and their sum for all.
  [[nodiscard]] __host__ __device__ uint64_t add_up_kept(const RowSearch<Cluster>& search,
                                                         const Kept& kept) {
    cluster_.sum(cluster_.leader_rank(), 0, [&](int rank, int thread) {
      UnitSum units(bounds_.largest, draw_.scale, vocab_size_);
      uint64_t of_infinite = 0;  // UnitSum has none
      const bool is_infinite = bounds_.largest == kInfinity;
      cluster_.tokens(rank, thread, [&](float logit, uint32_t id) {
        const bool is_kept = kept.has(logit, id);
        if (is_infinite) {
          of_infinite += is_kept ? search.units_of(logit) : 0;
        } else {
          units.add(is_kept ? logit : -kInfinity);
        }
      });
      return is_infinite ? of_infinite : units.total();
    });
    cluster_.meet();
    return share_total();
  }
  /// The sum of the leader's warp_units[0], for all.
  [[nodiscard]] __host__ __device__ uint64_t share_total() {
    if (cluster_.is_leader()) cluster_.publish({true, {}, {cluster_.total(0), 0}});
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
