#pragma once

#include <algorithm>

#include "cuda/philox_cuda.h"

#include "ops/sampling/row_search_cuda.h"
#include "ops/sampling/sample_params.h"

// What a Cluster (row_search_cuda.h) does for one row. Beside what is said there it has:
//
//   largest_of_groups(f)   own.group_maxima: the largest f(rank, thread) of a group of threads, for
//                          all blocks to see
//   extremes(largest, bound)  of own.all_group_maxima, as kGroups says
//   sum<n>(f)              own.units: the sums of n numbers f(rank, thread).a; all blocks see them
//   lower(own.lowest_id, id)  the minimum
//   leader_each(f)         f(own, thread) in the threads of block 0, which then see what was done

namespace heddle::cuda::sampling {

using heddle::sampling::kInfinity;

struct TwoSums {
  uint64_t a[2] = {0, 0};
};

/// How a row draws; temperature > 0.
struct RowDraw {
  float temperature;
  int32_t top_k;
  float top_p, min_p;
  double u;
};

/// The options of a row; greedy without a positive temperature.
[[nodiscard]] __host__ __device__ inline RowDraw draw_of(const SampleParams& p, int64_t row) {
  if (p.temperature.data == nullptr || !(p.temperature[row] > 0.0f)) return {};
  constexpr uint32_t kSample = 0;  // cpu::Draw
  return {p.temperature[row], p.top_k[row], p.top_p[row], p.min_p[row],
          uniform_draw(p.seed[row], p.step[row], kSample, 0)};
}

/// The largest logit of a row, and a bound that at least kGroups / 2 of its tokens are not below,
/// unless it is -infinity.
struct RowBounds {
  float largest, bound;
};
template <class Cluster>
[[nodiscard]] __host__ __device__ RowBounds find_bounds(Cluster& cluster) {
  cluster.largest_of_groups([&](int rank, int thread) {
    float most = -kInfinity;
    cluster.tokens(rank, thread, [&](float logit, uint32_t) { most = fmaxf(most, logit); });
    return most;
  });
  cluster.each_in_block([&](BlockState& own, int, int thread) {
    if (thread == 0) {
      own.list_size = 0;
      own.lowest_id = ~0u;
      own.units[0] = own.units[1] = 0;
    }
    const int of_block = kGroups / cluster.num_blocks();
    if (thread < kGroups) {
      own.all_group_maxima[thread] = cluster.of(thread / of_block).group_maxima[thread % of_block];
    }
  });
  RowBounds bounds{};
  cluster.extremes(bounds.largest, bounds.bound);
  return bounds;
}

/// A weight in units, with a scale of its own.
struct UnitScale {
  float largest, scale;
  double magic;

  [[nodiscard]] __host__ __device__ uint64_t units_of(float logit) const {
    const auto fma = [](float a, float b, float c) { return fmaf(a, b, c); };
    return heddle::sampling::units_of(
        heddle::sampling::weight_of(logit == logit ? logit : -kInfinity, largest, scale, fma),
        magic);
  }
};

/// sample of one row. The leader has its token, and the sum of the units at temperature 1 where
/// that is asked for.
template <class Cluster>
class RowSampler {
 public:
  __host__ __device__ RowSampler(Cluster& cluster, int64_t vocab_size, const RowBounds& bounds,
                                 const RowDraw& draw)
      : cluster_(cluster),
        vocab_size_(vocab_size),
        bounds_(bounds),
        draw_(draw),
        search_(cluster, vocab_size, bounds.largest, heddle::sampling::scale_of(draw.temperature)) {
  }

  __host__ __device__ void run(bool wants_logprob) {
    const bool is_draw = draw_.temperature > 0.0f;
    const bool needs_total = is_draw && !has_top_k();
    const bool shares = needs_total && draw_.temperature == 1.0f;
    const bool needs_one = wants_logprob && !shares;
    const UnitScale at_draw = unit_scale(draw_.temperature), at_one = unit_scale(1.0f);
    if (!is_draw) {
      needs_one ? pass<false, 1>(at_one, at_one) : pass<false, 0>(at_one, at_one);
    } else if (needs_total && needs_one) {
      pass<true, 2>(at_draw, at_one);
    } else if (needs_total || needs_one) {
      const UnitScale scale = needs_total ? at_draw : at_one;
      pass<true, 1>(scale, scale);
    } else {
      pass<true, 0>(at_one, at_one);
    }
    if (cluster_.is_leader()) {
      uint64_t sums[2] = {0, 0};
      for (int rank = 0; rank < cluster_.num_blocks(); ++rank) {
        for (int i = 0; i < 2; ++i) sums[i] += cluster_.of(rank).units[i];
      }
      one_units_ = needs_total && needs_one ? sums[1] : sums[0];
      Decision decision{true, {}, {sums[0], 0}};
      if (is_draw) {
        decision.found = draw_from_list(sums[0]);
      } else {
        for (int rank = 0; rank < cluster_.num_blocks(); ++rank) {
          token_ = std::min(token_, cluster_.of(rank).lowest_id);
        }
      }
      cluster_.publish(decision);
    }
    cluster_.meet();
    const Decision decision = cluster_.decision();
    if (!decision.found) draw_from_row(decision.mass.units);
  }
  /// The leader's, after run().
  [[nodiscard]] __host__ __device__ uint32_t token() const { return token_; }
  [[nodiscard]] __host__ __device__ uint64_t one_units() const { return one_units_; }

 private:
  using Kind = Target::Kind;

  [[nodiscard]] __host__ __device__ UnitScale unit_scale(float temperature) const {
    return {bounds_.largest, heddle::sampling::scale_of(temperature),
            heddle::sampling::units_magic(vocab_size_)};
  }
  [[nodiscard]] __host__ __device__ bool has_top_k() const {
    return draw_.top_k > 0 && draw_.top_k < vocab_size_;
  }
  [[nodiscard]] __host__ __device__ double min_p_bound() const {
    return heddle::sampling::min_p_bound(bounds_.largest, draw_.temperature, draw_.min_p);
  }

  /// Lists the tokens that are not below the bound, or finds the lowest of the largest logit, and
  /// adds up units.
  template <bool kDraw, int kNumSums>
  __host__ __device__ void pass(const UnitScale& first, const UnitScale& second) {
    const Places& places = search_.places();
    const RowBounds bounds = bounds_;
    cluster_.template sum<kNumSums>([&](BlockState& own, int rank, int thread) {
      TwoSums sums;
      uint32_t lowest = ~0u;
      cluster_.tokens(rank, thread, [&](float logit, uint32_t id) {
        if constexpr (kDraw) {
          if (logit >= bounds.bound && logit > -kInfinity) {
            search_.push(own, places.place_of(logit, id));
          }
        } else {
          if (logit == bounds.largest && id < lowest) lowest = id;
        }
        if constexpr (kNumSums > 0) sums.a[0] += first.units_of(logit);
        if constexpr (kNumSums > 1) sums.a[1] += second.units_of(logit);
      });
      if (lowest != ~0u) cluster_.lower(own.lowest_id, lowest);
      return sums;
    });
  }

  /// The leader's: draws from the beginning of the order that is listed, whether that is enough.
  [[nodiscard]] __host__ __device__ bool draw_from_list(uint64_t total) {
    constexpr uint64_t kUnknown = ~uint64_t{0};
    const uint32_t merged = search_.merge_lists();
    if (merged > uint32_t{kMaxList}) return false;
    const auto n = static_cast<int>(merged);
    BlockState& own = cluster_.of(0);
    cluster_.scan(
        n, [&](int i) { return search_.mass_of(own.list[i]); }, own.sums, nullptr);
    const auto before = [&](const Target& target) {
      return cluster_.count_if(n, [&](int i) {
        return !target.is_reached({own.sums[i], uint64_t(i) + 1});
      });
    };
    const bool is_complete = bounds_.bound == -kInfinity;
    uint64_t count = is_complete ? merged : kUnknown;
    uint64_t kept = is_complete ? own.sums[n - 1] : total;
    if (has_top_k()) {
      if (draw_.top_k <= n) {
        count = static_cast<uint64_t>(draw_.top_k);
        kept = own.sums[count - 1];
      } else if (!is_complete) {
        return false;
      }
    }
    if (draw_.top_p < 1.0f) {
      const int at =
          before({Kind::kAtLeast, kept, double{draw_.top_p} * static_cast<double>(kept)});
      if (at < n) {
        count = uint64_t(at) + 1;
        kept = own.sums[at];
      } else if (count == kUnknown) {
        return false;
      }
    }
    if (draw_.min_p > 0.0f) {
      const double bound = draw_.min_p > 1.0f ? 0.0 : min_p_bound();
      const int enough = cluster_.count_if(
          n, [&](int i) { return double{search_.places().logit_of(own.list[i])} >= bound; });
      const int at = enough > 1 && !(draw_.min_p > 1.0f) ? enough : 1;
      if (at == n && count == kUnknown) return false;
      if (uint64_t(at) < count) {
        count = uint64_t(at);
        kept = own.sums[at - 1];
      }
    }
    const int at = before({Kind::kAbove, kept, draw_.u * static_cast<double>(kept)});
    if (at == n) return false;
    token_ = search_.places().id_of(own.list[at]);
    return true;
  }

  /// The same by searches, for any row; the total where there is no top_k.
  __host__ __device__ void draw_from_row(uint64_t total) {
    uint64_t kept = total, last = ~uint64_t{0};
    const auto cut = [&](const Target& target) {
      const Decision at = search_.find(target);
      kept = at.mass.units;
      if (at.found) last = at.range.first;
    };
    if (has_top_k()) cut({Kind::kCount, static_cast<uint64_t>(draw_.top_k)});
    if (draw_.top_p < 1.0f) {
      cut({Kind::kAtLeast, kept, double{draw_.top_p} * static_cast<double>(kept)});
    }
    if (draw_.min_p > 1.0f) {
      cut({Kind::kCount, 1});
    } else if (draw_.min_p > 0.0f) {
      kept = units_from(min_p_bound(), last);
    }
    const Decision drawn = search_.find({Kind::kAbove, kept, draw_.u * static_cast<double>(kept)});
    token_ = search_.places().id_of(drawn.range.first);
  }
  /// The units of the logits of at least `bound` up to a place.
  [[nodiscard]] __host__ __device__ uint64_t units_from(double bound, uint64_t last) {
    cluster_.template sum<1>([&](BlockState&, int rank, int thread) {
      TwoSums sums;
      cluster_.tokens(rank, thread, [&](float logit, uint32_t id) {
        if (double{logit} >= bound && search_.places().place_of(logit, id) <= last) {
          sums.a[0] += search_.units_of(logit);
        }
      });
      return sums;
    });
    if (cluster_.is_leader()) {
      Decision decision{};
      for (int rank = 0; rank < cluster_.num_blocks(); ++rank) {
        decision.mass.units += cluster_.of(rank).units[0];
      }
      cluster_.publish(decision);
    }
    cluster_.meet();
    return cluster_.decision().mass.units;
  }

  Cluster& cluster_;
  const int64_t vocab_size_;
  const RowBounds bounds_;
  const RowDraw draw_;
  const RowSearch<Cluster> search_;
  uint32_t token_ = ~0u;
  uint64_t one_units_ = 0;
};

/// token_logprobs' k most likely tokens of a row, in order: write(i, place) for each.
template <class Cluster, class Write>
__host__ __device__ void list_top(Cluster& cluster, const RowSearch<Cluster>& search,
                                  const RowBounds& bounds, int64_t k, const Write& write) {
  const Places& places = search.places();
  // The largest first, if they are few enough, else what the histograms say.
  PlaceRange batch{
      0, places.place(heddle::sampling::ascending_bits(bounds.bound), places.id_mask), {}};
  for (int64_t done = 0; done < k;) {
    search.template gather<true>(batch);
    if (cluster.is_leader()) {
      const uint32_t size = search.merge_lists();
      const bool fits = size <= uint32_t{kMaxList};
      if (fits) {
        cluster.leader_each([&](BlockState& own, int thread) {
          if (uint32_t(thread) < size && done + thread < k) write(done + thread, own.list[thread]);
        });
      }
      cluster.publish({fits, {}, {0, size}});
    }
    cluster.meet();
    const Decision decision = cluster.decision();
    if (decision.found) done += static_cast<int64_t>(decision.mass.count);
    const uint64_t next = decision.found ? batch.last + 1 : batch.first;
    if (done < k) batch = search.next_batch(next).range;
  }
}

}  // namespace heddle::cuda::sampling
