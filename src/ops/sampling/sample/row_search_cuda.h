#pragma once

#include "ops/sampling/sample/row_state_cuda.h"
#include "ops/sampling/sample/unroll_cuda.h"

// Finds places in the order of choice without sorting the row.
//
// A Cluster runs the steps of a row: DeviceCluster (device_cluster_cuda.h) does so on a GPU, that
// of the tests in one thread of the CPU. Its functions:
//
//   each(f)           f(own state, rank, thread) in every thread; then all blocks see what was done
//   each_in_block(f)  the same, where a block needs to see its own alone
//   meet()            waits for all blocks
//   tokens(rank, thread, f)   f(logit, id) for each logit of a thread; NaN comes as it is, and
//                             -infinity with ids past the end where the row ends
//   fours(rank, thread, f, g, is_last)   f(four logits) for all of them, a float4 each; where that
//                             is true g(logit, id) for each of the four, some time later. is_last:
//                             the logits are read no more after it, but for a search
//   of(rank)          the state of a block
//   leader_rank()     the block whose threads, all of them, alone call the next ones
//   is_leader()       whether this is it
//   leader()          its state
//   sort(n)           sorts list[0, n)
//   pairs(n, f, g)    g(own, i, sum of f(i, j) over all j < n) for all i < n; n <= kFewPairs
//   scan(n, f, units, counts)  running sums of f(i), a Mass, i < n; counts may be nullptr
//   count_if(n, f)    how many i < n have f(i), which all threads get
//   publish(decision) for decision(), after meet()

namespace heddle::cuda::sampling {

/// What a search looks for: the first token with whose mass added the sum is enough.
struct SearchTarget {
  enum class Kind { kCount, kAtLeast, kAbove } kind;
  uint64_t limit;      // kCount: so many tokens. Else enough in any case, where it is reached
  double units = 0.0;  // kAtLeast, kAbove: so many, or more than so many, as f64

  [[nodiscard]] __host__ __device__ bool is_reached(const Mass& sum) const {
    if (sum.count == 0) return false;
    if (kind == Kind::kCount) return sum.count >= limit;
    const auto have = static_cast<double>(sum.units);
    return sum.units >= limit || (kind == Kind::kAtLeast ? !(have < units) : have > units);
  }
};

/// Searches in the tokens of a row that have a logit above -infinity.
template <class Cluster>
class RowSearch {
 public:
  /// `least` is the least logit above -infinity, which find() needs.
  __host__ __device__ RowSearch(Cluster& cluster, int64_t vocab_size, float largest, float scale,
                                float least = -heddle::sampling::kInfinity)
      : cluster_(cluster),
        places_(vocab_size),
        vocab_size_(static_cast<uint32_t>(vocab_size)),
        largest_(largest),
        scale_(scale),
        bins_per_octave_(static_cast<float>(kBins - 1) / octaves_down_to(least)),
        magic_(heddle::sampling::units_magic(vocab_size)) {}

  [[nodiscard]] __host__ __device__ Places places() const { return places_; }
  [[nodiscard]] __host__ __device__ uint64_t units_of(float logit) const {
    const auto fma = [](float a, float b, float c) { return fmaf(a, b, c); };
    return heddle::sampling::units_of(heddle::sampling::weight_of(logit, largest_, scale_, fma),
                                      magic_);
  }
  [[nodiscard]] __host__ __device__ Mass mass_of(uint64_t place) const {
    return {units_of(places_.logit_of(place)), 1};
  }

  /// A token goes into the block's list.
  __host__ __device__ void push(BlockState& own, uint64_t place) const {
    const uint32_t at = cluster_.add(own.list_size, 1u);
    if (at < uint32_t{kMaxList}) own.list[at] = place;
  }
  /// The leader's: all lists into its own, ascending. The number of tokens, above kMaxList where
  /// they are too many; then nothing is done.
  [[nodiscard]] __host__ __device__ uint32_t merge_lists() const {
    uint32_t sizes[kMaxBlocks], size = 0;
    HEDDLE_UNROLL
    for (int rank = 0; rank < kMaxBlocks; ++rank) {
      sizes[rank] = rank < cluster_.num_blocks() ? cluster_.of(rank).list_size : 0;
      size += sizes[rank];
    }
    if (size > uint32_t{kMaxList}) return size;
    cluster_.leader_each([&](BlockState& own, int thread) {
      uint32_t offset = own.list_size;
      HEDDLE_UNROLL
      for (int rank = 0; rank < kMaxBlocks; ++rank) {
        if (rank == cluster_.leader_rank() || rank >= cluster_.num_blocks()) continue;
        if (uint32_t(thread) < sizes[rank]) {
          own.list[offset + thread] = cluster_.of(rank).list[thread];
        }
        offset += sizes[rank];
      }
    });
    cluster_.sort(static_cast<int>(size));
    return size;
  }

  /// The place of the target and the mass up to it; not found where the row has too little, then
  /// `mass` is that of the row.
  [[nodiscard]] __host__ __device__ Decision find(const SearchTarget& target) const {
    Decision found = choose_bin(target, {0, 0, {}}, true);
    if (!found.found) return found;
    if (found.mass.count <= uint64_t{kMaxList}) {
      gather_bin(static_cast<float>(found.range.first));
    } else {
      const Mass before = found.range.before;
      found.range = range_of_bin(static_cast<int>(found.range.first));
      found.range.before = before;
      do {
        found = choose_bin(target, found.range, false);
      } while (found.mass.count > uint64_t{kMaxList});
      gather<false>(found.range);
    }
    return find_in_list(target, found.range.before);
  }

  /// A range from `first` on that holds 1 to kMaxList tokens, those of -infinity and NaN among
  /// them; one has to be there.
  [[nodiscard]] __host__ __device__ Decision next_batch(uint64_t first) const {
    PlaceRange range{first,
                     places_.place(heddle::sampling::ascending_bits(-heddle::sampling::kInfinity),
                                   places_.id_mask),
                     {}};
    for (;;) {
      const int shift = shift_of(range);
      fill_histogram<true>(range, [&](uint64_t place) { return (place - range.first) >> shift; });
      if (cluster_.is_leader()) {
        sum_histogram();
        const BlockState& own = cluster_.leader();
        const int fitting =
            cluster_.count_if(kBins, [&](int i) { return own.list[i] <= uint64_t{kMaxList}; });
        const int empty = cluster_.count_if(kBins, [&](int i) { return own.list[i] == 0; });
        const bool fits = fitting > empty;
        const uint64_t begin = fits ? 0 : uint64_t(empty), end = fits ? fitting : empty + 1;
        const uint64_t last = range.first + (end << shift) - 1;
        cluster_.publish(
            {fits,
             {range.first + (begin << shift), last < range.last ? last : range.last, {}},
             {}});
      }
      cluster_.meet();
      const Decision decision = cluster_.decision();
      range = decision.range;
      if (decision.found) return decision;
    }
  }
  /// Fills the lists with the tokens of a range; all blocks see it.
  template <bool kAll>
  __host__ __device__ void gather(const PlaceRange& range) const {
    clear_list();
    const uint32_t low = places_.ascending_of(range.last), high = places_.ascending_of(range.first);
    const float least = Places::logit_of_bits(low);
    cluster_.each([&](BlockState& own, int rank, int thread) {
      cluster_.fours(
          rank, thread,
          [&](const float4& four) {
            return kAll && least == -heddle::sampling::kInfinity ? true : largest_of(four) >= least;
          },
          [&](float logit, uint32_t id) {
            visit<kAll>(logit, id, low, high, range, [&](uint64_t place) { push(own, place); });
          });
    });
  }

 private:
  /// f(place) where the token is in the range, whose logits have the bits [low, high].
  template <bool kAll, class F>
  __host__ __device__ void visit(float logit, uint32_t id, uint32_t low, uint32_t high,
                                 const PlaceRange& range, const F& f) const {
    const float clean = logit == logit ? logit : -heddle::sampling::kInfinity;
    const uint32_t ascending = heddle::sampling::ascending_bits(clean);
    if (ascending < low || ascending > high) return;
    if (kAll ? id >= vocab_size_ : clean == -heddle::sampling::kInfinity) return;
    const uint64_t place = places_.place(ascending, id);
    if (place >= range.first && place <= range.last) f(place);
  }

  /// The exponent of the weight of a logit, negated.
  [[nodiscard]] __host__ __device__ float octaves_down_to(float logit) const {
    // Weights below 2^-46 have no unit. Not all bins of a flat row are 0 wide.
    constexpr float kMost = 46.0f, kLeast = 0x1p-10f;
    return fminf(fmaxf(-exponent(logit), kLeast), kMost);
  }
  [[nodiscard]] __host__ __device__ float exponent(float logit) const {
    const float below = logit == largest_ ? 0.0f : logit - largest_;
    return fmaxf(below * scale_, heddle::sampling::Exponent::kLeast);
  }
  /// Bins of equal width in the exponent of the weight, from the largest logit to the least one:
  /// the whole number in this.
  [[nodiscard]] __host__ __device__ float depth(float logit) const {
    return fminf(exponent(logit) * -bins_per_octave_, static_cast<float>(kBins - 1));
  }
  [[nodiscard]] __host__ __device__ int exponent_bin(float logit) const {
    return static_cast<int>(depth(logit));
  }
  [[nodiscard]] __host__ __device__ bool is_in_bin(float logit, float bin) const {
    const float at = depth(logit);
    return at >= bin && at < bin + 1.0f && logit > -heddle::sampling::kInfinity;
  }
  /// Fills the lists with the tokens of a bin; all blocks see it.
  __host__ __device__ void gather_bin(float bin) const {
    clear_list();
    cluster_.each([&](BlockState& own, int rank, int thread) {
      cluster_.fours(
          rank, thread,
          [&](const float4& four) {
            return is_in_bin(four.x, bin) || is_in_bin(four.y, bin) || is_in_bin(four.z, bin) ||
                   is_in_bin(four.w, bin);
          },
          [&](float logit, uint32_t id) {
            if (is_in_bin(logit, bin)) push(own, places_.place_of(logit, id));
          });
    });
  }
  __host__ __device__ void clear_list() const {
    cluster_.each_in_block([](BlockState& own, int, int thread) {
      if (thread == 0) own.list_size = 0;
    });
  }
  /// The bits of the least logit whose bin is at most `bin`.
  [[nodiscard]] __host__ __device__ uint32_t least_of_bin(int bin) const {
    uint32_t low = heddle::sampling::ascending_bits(-heddle::sampling::kInfinity) + 1;
    uint32_t high = heddle::sampling::ascending_bits(largest_);
    while (low < high) {
      const uint32_t middle = low + (high - low) / 2;
      if (exponent_bin(Places::logit_of_bits(middle)) <= bin) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }
  [[nodiscard]] __host__ __device__ PlaceRange range_of_bin(int bin) const {
    const uint32_t most =
        bin == 0 ? heddle::sampling::ascending_bits(largest_) : least_of_bin(bin - 1) - 1;
    return {places_.place(most, 0), places_.place(least_of_bin(bin), places_.id_mask), {}};
  }

  /// The places of a range have so many bits below those of a bin.
  [[nodiscard]] static __host__ __device__ int shift_of(const PlaceRange& range) {
    constexpr int kBinBits = std::bit_width(unsigned{kBins}) - 1;
    static_assert(1 << kBinBits == kBins);
    int bits = 0;
    while (bits < 64 && (range.last - range.first) >> bits != 0) ++bits;
    return bits > kBinBits ? bits - kBinBits : 0;
  }

  __host__ __device__ void clear_histogram() const {
    cluster_.each_in_block([](BlockState& own, int, int thread) {
      own.low[thread] = own.high[thread] = own.count[thread] = 0;
    });
  }
  __host__ __device__ void add(BlockState& own, uint64_t bin, const Mass& mass) const {
    const auto low = static_cast<uint32_t>(mass.units);
    const uint32_t carry = cluster_.add(own.low[bin], low) + low < low ? 1u : 0u;
    const uint32_t high = static_cast<uint32_t>(mass.units >> 32) + carry;
    if (high != 0) cluster_.add(own.high[bin], high);
    cluster_.add(own.count[bin], 1u);
  }
  template <bool kAll, class Bin>
  __host__ __device__ void fill_histogram(const PlaceRange& range, const Bin& bin) const {
    clear_histogram();
    const uint32_t low = places_.ascending_of(range.last), high = places_.ascending_of(range.first);
    cluster_.each([&](BlockState& own, int rank, int thread) {
      cluster_.tokens(rank, thread, [&](float logit, uint32_t id) {
        visit<kAll>(logit, id, low, high, range,
                    [&](uint64_t place) { add(own, bin(place), mass_of(place)); });
      });
    });
  }
  /// The leader's: running sums over the bins of all blocks, units in `sums`, tokens in `list`.
  __host__ __device__ void sum_histogram() const {
    BlockState& own = cluster_.leader();
    cluster_.scan(
        kBins,
        [&](int bin) {
          Mass mass{};
          HEDDLE_UNROLL
          for (int rank = 0; rank < kMaxBlocks; ++rank) {
            if (rank >= cluster_.num_blocks()) continue;
            const BlockState& block = cluster_.of(rank);
            mass.units += uint64_t{block.high[bin]} << 32 | block.low[bin];
            mass.count += block.count[bin];
          }
          return mass;
        },
        own.sums, own.list);
  }

  /// The bin in which the target is reached: of a range its part, of all tokens the bin's number.
  [[nodiscard]] __host__ __device__ Decision choose_bin(const SearchTarget& target,
                                                        const PlaceRange& range,
                                                        bool is_all) const {
    const int shift = is_all ? 0 : shift_of(range);
    if (is_all) {
      clear_histogram();
      cluster_.each([&](BlockState& own, int rank, int thread) {
        cluster_.tokens(rank, thread, [&](float logit, uint32_t) {
          if (logit > -heddle::sampling::kInfinity) {
            add(own, static_cast<uint64_t>(exponent_bin(logit)), {units_of(logit), 1});
          }
        });
      });
    } else {
      fill_histogram<false>(range, [&](uint64_t place) { return (place - range.first) >> shift; });
    }
    if (cluster_.is_leader()) {
      sum_histogram();
      const BlockState& own = cluster_.leader();
      const Mass before = range.before;
      const auto up_to = [&](int bin) {
        return Mass{before.units + own.sums[bin], before.count + own.list[bin]};
      };
      const int bin = cluster_.count_if(kBins, [&](int i) { return !target.is_reached(up_to(i)); });
      Decision decision{bin < kBins, {}, up_to(bin < kBins ? bin : kBins - 1)};
      if (decision.found) {
        if (is_all) {
          decision.range.first = static_cast<uint64_t>(bin);
        } else {
          const uint64_t first = range.first + (uint64_t(bin) << shift);
          const uint64_t last = first + ((uint64_t{1} << shift) - 1);
          decision.range = {first, last < range.last ? last : range.last, {}};
        }
        decision.range.before = bin == 0 ? before : up_to(bin - 1);
        decision.mass.units -= decision.range.before.units;
        decision.mass.count -= decision.range.before.count;
      }
      cluster_.publish(decision);
    }
    cluster_.meet();
    return cluster_.decision();
  }

  [[nodiscard]] __host__ __device__ Decision find_in_list(const SearchTarget& target,
                                                          const Mass& before) const {
    if (cluster_.is_leader()) {
      const auto size = static_cast<int>(merge_lists());
      const BlockState& own = cluster_.leader();
      cluster_.scan(
          size, [&](int i) { return mass_of(own.list[i]); }, cluster_.leader().sums, nullptr);
      const auto up_to = [&](int i) {
        return Mass{before.units + own.sums[i], before.count + uint64_t(i) + 1};
      };
      const int at = cluster_.count_if(size, [&](int i) { return !target.is_reached(up_to(i)); });
      cluster_.publish({true, {own.list[at], own.list[at], up_to(at)}, up_to(at)});
    }
    cluster_.meet();
    return cluster_.decision();
  }

  Cluster& cluster_;
  const Places places_;
  const uint32_t vocab_size_;
  const float largest_, scale_, bins_per_octave_;
  const double magic_;
};

}  // namespace heddle::cuda::sampling
