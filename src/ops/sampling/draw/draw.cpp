#include "ops/sampling/draw/draw.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "ops/sampling/draw/weight.h"

namespace heddle {
namespace {

/// The tokens of positive weight in the order of choice. Few are ever looked at, so they are sorted
/// as they are needed: weights of a range at a time, and of those a few at a time. Ranges keep
/// the order because weights fall with logits.
class TokensInOrder {
 public:
  TokensInOrder(const LogitRow& row, const DrawScratch& scratch) : row_(row), scratch_(scratch) {}

  /// Whether there is an i-th token; i grows by at most one past what was requested before.
  [[nodiscard]] bool has(int64_t i) {
    while (i >= num_sorted_ && (num_sorted_ < num_keys_ || next_range())) sort_some();
    return i < num_sorted_;
  }
  /// After has(i).
  [[nodiscard]] int32_t token(int64_t i) const { return token_of(scratch_.keys[i]); }
  [[nodiscard]] OrderKey key(int64_t i) const { return scratch_.keys[i]; }
  [[nodiscard]] uint64_t units(int64_t i) const {
    return sampling::units_of(scratch_.weights[token(i)], sampling::units_magic(row_.vocab_size));
  }
  [[nodiscard]] float logit(int64_t i) const { return row_.logits[token(i)]; }

 private:
  // The first range holds what matters to most draws, the last all that has a unit.
  static constexpr float kLowerBounds[] = {0x1p-8f, 0x1p-16f, 0x1p-28f,
                                           std::numeric_limits<float>::denorm_min()};
  static constexpr int64_t kFirstSorted = 64, kGrowth = 8;

  bool next_range() {
    while (range_ < std::size(kLowerBounds)) {
      const float high = range_ == 0 ? 2.0f : kLowerBounds[range_ - 1];
      const int64_t found = cpu::sampling::keys_of_weights(
          row_, scratch_.weights, kLowerBounds[range_++], high, scratch_.keys + num_keys_);
      num_keys_ += found;
      if (found > 0) return true;
    }
    return false;
  }

  void sort_some() {
    const int64_t wanted = std::max(kFirstSorted, kGrowth * num_sorted_);
    OrderKey* const begin = scratch_.keys + num_sorted_;
    OrderKey* const all = scratch_.keys + num_keys_;
    OrderKey* const end = all - begin > wanted ? begin + wanted : all;
    if (end != all) std::nth_element(begin, end, all);
    std::sort(begin, end);
    num_sorted_ = end - scratch_.keys;
  }

  LogitRow row_;
  DrawScratch scratch_;
  size_t range_ = 0;
  int64_t num_keys_ = 0, num_sorted_ = 0;
};

/// The tokens that are left: the first `count` in order, and the sum of their units.
struct Kept {
  int64_t count;
  uint64_t total;
};

Kept keep_top_k(TokensInOrder& tokens, int64_t top_k) {
  Kept kept{0, 0};
  for (; kept.count < top_k && tokens.has(kept.count); ++kept.count) {
    kept.total += tokens.units(kept.count);
  }
  return kept;
}

Kept keep_top_p(TokensInOrder& tokens, const Kept& from, double top_p) {
  Kept kept{1, tokens.has(0) ? tokens.units(0) : 0};
  const double enough = top_p * static_cast<double>(from.total);
  for (; kept.count < from.count && static_cast<double>(kept.total) < enough &&
         tokens.has(kept.count);
       ++kept.count) {
    kept.total += tokens.units(kept.count);
  }
  return kept;
}

/// Keeps the first token, and of the others those of a logit of at least `bound`.
Kept keep_from(TokensInOrder& tokens, const Kept& from, double bound) {
  Kept kept{1, tokens.has(0) ? tokens.units(0) : 0};
  for (; kept.count < from.count && tokens.has(kept.count) &&
         double{tokens.logit(kept.count)} >= bound;
       ++kept.count) {
    kept.total += tokens.units(kept.count);
  }
  return kept;
}

/// Draws from the first kept.count tokens in order, of which the last has the key `last`: by
/// ascending id the first with which the sum exceeds u times the total.
int32_t draw_by_id(const LogitRow& row, const DrawScratch& scratch, const Kept& kept, OrderKey last,
                   double u) {
  const double passed = u * static_cast<double>(kept.total);
  const double magic = sampling::units_magic(row.vocab_size);
  uint64_t running = 0;
  const auto is_passed_by = [&](int32_t token) {
    running += sampling::units_of(scratch.weights[token], magic);
    // As f64 the sum of all may be no more than u times itself.
    return static_cast<double>(running) > passed || running == kept.total;
  };
  constexpr int64_t kFew = 16;  // of so many tokens one: sorting them is faster than to look at all
  if (kept.count <= row.vocab_size / kFew) {
    OrderKey* const keys = scratch.keys;
    std::sort(keys, keys + kept.count,
              [](OrderKey a, OrderKey b) { return token_of(a) < token_of(b); });
    for (int64_t i = 0; i < kept.count; ++i) {
      if (is_passed_by(token_of(keys[i]))) return token_of(keys[i]);
    }
  } else {
    for (int32_t token = 0; token < row.vocab_size; ++token) {
      const bool is_kept = order_key(row.logits[token], token) <= last;
      if (is_kept && is_passed_by(token)) return token;
    }
  }
  return 0;
}

}  // namespace

int32_t draw_token(const LogitRow& row, float largest, const DrawOptions& options,
                   const DrawScratch& scratch) {
  Kept kept{row.vocab_size,
            cpu::sampling::sum_weights(row, largest, options.temperature, scratch.weights)};
  TokensInOrder tokens(row, scratch);
  if (options.top_k > 0 && options.top_k < row.vocab_size) {
    kept = keep_top_k(tokens, options.top_k);
  }
  if (options.top_p < 1.0f) kept = keep_top_p(tokens, kept, double{options.top_p});
  if (options.min_p > 1.0f) {
    kept = keep_top_k(tokens, 1);
  } else if (options.min_p > 0.0f) {
    kept = keep_from(tokens, kept,
                     double{largest} + sampling::min_p_offset(options.temperature, options.min_p));
  }

  const bool is_cut = kept.count < row.vocab_size;
  const OrderKey last = is_cut ? tokens.key(kept.count - 1) : ~OrderKey{0};
  return draw_by_id(row, scratch, kept, last, options.u);
}

}  // namespace heddle
