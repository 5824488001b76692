#pragma once

#include "ops/sampling/sample/row_search_cuda.h"
#include "ops/sampling/sample/unroll_cuda.h"

namespace heddle::cuda::sampling {

/// The order of choice of places whose logits are from `low` up to `high`, and parts of it.
struct ByPlace {
  Places places;
  float high, per_logit;

  __host__ __device__ ByPlace(const Places& its_places, float low, float its_high)
      : places(its_places),
        high(its_high),
        per_logit(static_cast<float>(kShareParts - 1) / fmaxf(its_high - low, 0x1p-100f)) {}
  [[nodiscard]] __host__ __device__ uint64_t key(uint64_t place) const { return place; }
  [[nodiscard]] __host__ __device__ int part(uint64_t place) const {
    const float at = (high - places.logit_of(place)) * per_logit;
    return static_cast<int>(fminf(at, float{kShareParts - 1}));
  }
};
/// That of ids.
struct ById {
  Places places;
  uint32_t ids_per_part;

  __host__ __device__ ById(const Places& its_places, uint32_t vocab_size)
      : places(its_places), ids_per_part((vocab_size + kShareParts - 1) / kShareParts) {}
  [[nodiscard]] __host__ __device__ uint64_t key(uint64_t place) const {
    return places.id_of(place);
  }
  [[nodiscard]] __host__ __device__ int part(uint64_t place) const {
    return static_cast<int>(places.id_of(place) / ids_per_part);
  }
};

/// Searches in a list of places, in no particular order, by the leader alone: in the sums of parts
/// of an order, then among the tokens of one part.
template <class Cluster>
class ListSearch {
 public:
  __host__ __device__ ListSearch(Cluster& cluster, const RowSearch<Cluster>& search,
                                 const uint64_t* list, uint32_t size)
      : cluster_(cluster), search_(search), list_(list), size_(size) {}

  /// f(own, place) for all that are listed.
  template <class F>
  __host__ __device__ void each(const F& f) const {
    cluster_.leader_each([&](BlockState& own, int thread) {
      for (auto i = uint32_t(thread); i < size_; i += kRowThreads) f(own, list_[i]);
    });
  }
  /// The first token in an order with which the target is reached, `before` being the units of what
  /// comes before the list, and the units up to it. Tokens after place `last` do not count. Not
  /// found where there is none, or the part has too many tokens.
  template <class Order>
  [[nodiscard]] __host__ __device__ Decision find(const SearchTarget& target, uint64_t before,
                                                  const Order& order, uint64_t last) const {
    cluster_.leader_each([](BlockState& own, int thread) {
      if (thread < kShareParts) own.share_units[thread] = 0;
      if (thread == 0) own.list_size = 0;
      if (thread == 0) own.decision.found = false;
    });
    each([&](BlockState& own, uint64_t place) {
      if (place > last) return;
      add_units(own.share_units[order.part(place)], search_.mass_of(place).units);
    });
    BlockState& own = cluster_.leader();
    cluster_.scan(
        kShareParts,
        [&](int i) {
          return Mass{own.share_units[i], 1};
        },
        own.share_units, nullptr);
    const int part = cluster_.count_if(kShareParts, [&](int i) {
      return !target.is_reached({before + own.share_units[i], 1});
    });
    if (part == kShareParts) return {};
    each([&](BlockState& its, uint64_t place) {
      if (place > last || order.part(place) != part) return;
      const uint32_t at = cluster_.add(its.list_size, 1u);
      if (at < uint32_t{kShareParts}) its.share_part[at] = place;
    });
    const auto n = static_cast<int>(own.list_size);
    if (n > kShareParts) return {};
    decide(target, before + (part > 0 ? own.share_units[part - 1] : 0), order, n);
    const Decision decision = cluster_.decision();
    cluster_.leader_each([](BlockState&, int) {});  // all have read it
    return decision;
  }

  static __host__ __device__ void add_units(uint64_t& sum, uint64_t units) {
    auto* const words = reinterpret_cast<uint32_t*>(&sum);  // the low one is the first
    const auto low = static_cast<uint32_t>(units);
    const uint32_t carry = Cluster::add(words[0], low) + low < low ? 1u : 0u;
    const uint32_t high = static_cast<uint32_t>(units >> 32) + carry;
    if (high != 0) Cluster::add(words[1], high);
  }

 private:
  /// The decision for the leader: which of n tokens in share_part it is.
  template <class Order>
  __host__ __device__ void decide(const SearchTarget& target, uint64_t before, const Order& order,
                                  int n) const {
    cluster_.leader_each([&](BlockState& own, int thread) {
      if (thread >= n) return;
      const uint64_t place = own.share_part[thread];
      uint64_t up_to = before;
      for (int i = 0; i < n; ++i) {
        const uint64_t other = own.share_part[i];
        if (order.key(other) <= order.key(place)) up_to += search_.mass_of(other).units;
      }
      const uint64_t without = up_to - search_.mass_of(place).units;
      if (!target.is_reached({up_to, 1}) || target.is_reached({without, without > 0 ? 1u : 0u})) {
        return;
      }
      own.decision = {true, {place, place, {}}, {up_to, 1}};
    });
  }

  Cluster& cluster_;
  const RowSearch<Cluster>& search_;
  const uint64_t* const list_;
  const uint32_t size_;
};

}  // namespace heddle::cuda::sampling
