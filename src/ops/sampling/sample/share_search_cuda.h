#pragma once

#include <limits>

#include "ops/sampling/sample/list_search_cuda.h"
#include "ops/sampling/sample/unit_sum_cuda.h"
#include "ops/sampling/sample/unroll_cuda.h"

namespace heddle::cuda::sampling {

/// Finds where top_p cuts a row of many similar logits, by the leader of the row alone, so that all
/// leaders of a batch do it at once. It looks at the row twice:
///
///   count    tokens in narrow bins. Their numbers and the weight of each bin tell about where the
///            cut is, in no particular bits
///   add up   the units of the tokens above these bins, and a list of those in them
///
/// The list then tells the cut exactly, and whether it lies there. Where it does not, or the list
/// is too long, nothing is found, and all blocks search (RowSearch).
///
/// A Cluster has for it, in addition to what is said in row_search_cuda.h, in the leader's threads:
///
///   row_part(thread, all, f)   f(four logits, first id) for what a thread takes of the whole row,
///                              or of a sample of it
///   sum_row(f)             segment_units: sums of f(four logits, first id),
///                          which adds to a UnitSum
///   lower_by_warp(least, bits)   the least of what all lanes of a warp have
template <class Cluster>
class ShareSearch {
 public:
  struct Cut {
    bool found;
    float logit;     // of the last token that is kept
    uint32_t id;     // its own
    uint64_t units;  // of all that are kept; segment_units has them by segment
  };

  __host__ __device__ ShareSearch(Cluster& cluster, const RowSearch<Cluster>& search,
                                  const RowLayout& layout, float largest, float scale)
      : cluster_(cluster), search_(search), layout_(layout), largest_(largest), scale_(scale) {}

  /// The cut for a share of the row's units.
  [[nodiscard]] __host__ __device__ Cut find(const SearchTarget& target, float share,
                                             int64_t vocab_size) {
    const float least = least_of_sample();
    if (!(least > -heddle::sampling::kInfinity)) return {};
    const Bracket bracket = bracket_of(share, least);
    const uint32_t size = add_up(bracket, vocab_size);
    if (size == 0 || size > uint32_t{kMaxShare}) return {};
    return cut_in_list(target, bracket, size);
  }

 private:
  /// Logits from `low` up to `high`.
  struct Bracket {
    float low, high;
    float least_part;  // where the parts of its list end

    [[nodiscard]] __host__ __device__ bool has(float logit) const {
      return logit >= low && logit <= high;
    }
  };

  /// Of those above -infinity, if the sample has any.
  [[nodiscard]] __host__ __device__ float least_of_sample() {
    cluster_.leader_each([](BlockState& own, int thread) {
      if (thread == 0) own.least = ~0u;
    });
    cluster_.leader_each([&](BlockState& own, int thread) {
      float least = heddle::sampling::kInfinity;
      cluster_.row_part(thread, false, [&](const float4& four, uint32_t) {
        for (const float x : {four.x, four.y, four.z, four.w}) {
          if (x > -heddle::sampling::kInfinity) least = fminf(least, x);
        }
      });
      cluster_.lower_by_warp(own.least, heddle::sampling::ascending_bits(least));
    });
    const float least = Places::logit_of_bits(cluster_.leader().least);
    return least < heddle::sampling::kInfinity ? least : -heddle::sampling::kInfinity;
  }

  /// Where the cut is, about.
  [[nodiscard]] __host__ __device__ Bracket bracket_of(float share, float least) {
    constexpr float kMost = 46.0f, kNarrow = 0x1p-10f;  // octaves; weights below 2^-46 are nothing
    const float octaves = fminf(fmaxf((largest_ - least) * scale_, kNarrow), kMost);
    const float octaves_per_bin = octaves / static_cast<float>(kShareBins - 1);
    const float per_logit = scale_ / octaves_per_bin;
    count_bins(per_logit);
    constexpr int kBinsEach = kShareBins / kRowThreads;
    const auto mass = [&](const BlockState& own, int bin) {
      constexpr float kUnits = 0x1p40f;
      const float weight = exp2f(-octaves_per_bin * (static_cast<float>(bin) + 0.5f));
      return static_cast<uint64_t>(weight * static_cast<float>(own.share_counts[bin]) * kUnits);
    };
    const BlockState& own = cluster_.leader();
    cluster_.scan(
        kRowThreads,
        [&](int i) {
          Mass sum{0, 1};
          for (int k = 0; k < kBinsEach; ++k) sum.units += mass(own, kBinsEach * i + k);
          return sum;
        },
        cluster_.leader().sums, nullptr);
    const double enough = double{share} * static_cast<double>(own.sums[kRowThreads - 1]);
    const int group =
        cluster_.count_if(kRowThreads - 1, [&](int i) { return double(own.sums[i]) < enough; });
    uint64_t up_to = group > 0 ? own.sums[group - 1] : 0;
    int bin = kBinsEach * group;
    for (const int end = bin + kBinsEach - 1; bin < end; ++bin) {
      up_to += mass(own, bin);
      if (!(static_cast<double>(up_to) < enough)) break;
    }
    constexpr float kLowest = std::numeric_limits<float>::lowest();
    const auto begin = [&](int i) { return largest_ - static_cast<float>(i) / per_logit; };
    return {bin + 2 >= kShareBins ? kLowest : begin(bin + 2),
            bin < 2 ? heddle::sampling::kInfinity : begin(bin - 1),
            begin(bin + 2 < kShareBins ? bin + 2 : kShareBins)};
  }
  __host__ __device__ void count_bins(float per_logit) {
    cluster_.leader_each([](BlockState& own, int thread) {
      for (int i = thread; i < kShareBins; i += kRowThreads) own.share_counts[i] = 0;
    });
    cluster_.leader_each([&](BlockState& own, int thread) {
      cluster_.row_part(thread, true, [&](const float4& four, uint32_t) {
        for (const float x : {four.x, four.y, four.z, four.w}) {
          if (!(x > -heddle::sampling::kInfinity)) continue;
          const float at = fminf((largest_ - x) * per_logit, static_cast<float>(kShareBins - 1));
          cluster_.add(own.share_counts[static_cast<int>(at)], 1u);
        }
      });
    });
  }

  /// The units of the tokens above a bracket, and share_list, those in it. So many they are, with
  /// or without room.
  [[nodiscard]] __host__ __device__ uint32_t add_up(const Bracket& bracket, int64_t vocab_size) {
    cluster_.leader_each([](BlockState& own, int thread) {
      if (thread == 0) own.list_size = 0;
    });
    BlockState& own = cluster_.leader();
    cluster_.sum_row(UnitSum(largest_, scale_, vocab_size),
                     [&](UnitSum& units, const float4& four, uint32_t id) {
                       const auto above = [&](float x) {
                         return x > bracket.high ? x : -heddle::sampling::kInfinity;
                       };
                       units.add({above(four.x), above(four.y), above(four.z), above(four.w)});
                       uint32_t at_id = id;
                       for (const float x : {four.x, four.y, four.z, four.w}) {
                         if (bracket.has(x)) list_token(own, x, at_id);
                         ++at_id;
                       }
                     });
    const uint32_t size = own.list_size;
    cluster_.leader_each([](BlockState&, int) {});  // all have read it
    return size;
  }
  __host__ __device__ void list_token(BlockState& own, float logit, uint32_t id) const {
    const uint32_t at = cluster_.add(own.list_size, 1u);
    if (at < uint32_t{kMaxShare}) own.share_list[at] = search_.places().place_of(logit, id);
  }

  [[nodiscard]] __host__ __device__ Cut cut_in_list(const SearchTarget& target,
                                                    const Bracket& bracket, uint32_t size) {
    const uint64_t above = cluster_.total(false);
    if (target.is_reached({above, above > 0 ? 1u : 0u})) return {};
    const Places places = search_.places();
    const ListSearch<Cluster> list(cluster_, search_, cluster_.leader().share_list, size);
    const float high = fminf(bracket.high, largest_);
    const Decision cut =
        list.find(target, above, ByPlace(places, bracket.least_part, high), ~uint64_t{0});
    if (!cut.found) return {};
    const uint64_t last = cut.range.first;
    list.each([&](BlockState& own, uint64_t place) {
      if (place > last) return;
      uint64_t& sum = own.segment_units[layout_.segment_of(places.id_of(place))];
      ListSearch<Cluster>::add_units(sum, search_.mass_of(place).units);
    });
    return {true, places.logit_of(last), places.id_of(last), cut.mass.units};
  }

  Cluster& cluster_;
  const RowSearch<Cluster>& search_;
  const RowLayout& layout_;
  const float largest_, scale_;
};

}  // namespace heddle::cuda::sampling
