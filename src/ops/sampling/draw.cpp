#include "ops/sampling/draw.h"

#include <algorithm>
#include <iterator>
#include <limits>

namespace heddle {
namespace {

/// The tokens of positive weight in the order of choice. Few are ever looked at, so they are sorted
/// as they are asked for: weights of a range at a time, and of those a few at a time. Ranges keep
/// the order because weights fall with logits.
class TokensInOrder {
 public:
  TokensInOrder(const LogitRow& row, const DrawScratch& scratch) : row_(row), scratch_(scratch) {}

  /// Whether there is an i-th token; i grows by at most one past what was asked for before.
  [[nodiscard]] bool has(int64_t i) {
    while (i >= num_sorted_ && (num_sorted_ < num_keys_ || next_range())) sort_some();
    return i < num_sorted_;
  }
  /// After has(i).
  [[nodiscard]] int32_t token(int64_t i) const { return token_of(scratch_.keys[i]); }
  [[nodiscard]] double weight(int64_t i) const { return double{scratch_.weights[token(i)]}; }

 private:
  // The first range holds what matters to most draws, the last all that is positive.
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

/// The tokens that are left: the first `count` in order, and the sum of their weights.
struct Kept {
  int64_t count;
  double total;
};

Kept keep_top_k(TokensInOrder& tokens, int64_t top_k) {
  Kept kept{0, 0.0};
  for (; kept.count < top_k && tokens.has(kept.count); ++kept.count) {
    kept.total += tokens.weight(kept.count);
  }
  return kept;
}

Kept keep_top_p(TokensInOrder& tokens, const Kept& from, double top_p) {
  Kept kept{1, tokens.has(0) ? tokens.weight(0) : 0.0};
  for (; kept.count < from.count && kept.total < top_p * from.total && tokens.has(kept.count);
       ++kept.count) {
    kept.total += tokens.weight(kept.count);
  }
  return kept;
}

/// Weights are relative to the largest, which is 1 and always stays.
Kept keep_min_p(TokensInOrder& tokens, const Kept& from, double min_p) {
  Kept kept{1, tokens.has(0) ? tokens.weight(0) : 0.0};
  for (; kept.count < from.count && tokens.has(kept.count) && tokens.weight(kept.count) >= min_p;
       ++kept.count) {
    kept.total += tokens.weight(kept.count);
  }
  return kept;
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
  if (options.min_p > 0.0f) kept = keep_min_p(tokens, kept, double{options.min_p});

  double running = 0.0;
  int32_t last = 0;  // where rounding keeps the sum below its total, the last token is drawn
  for (int64_t i = 0; i < kept.count && tokens.has(i); ++i) {
    last = tokens.token(i);
    running += tokens.weight(i);
    if (running > options.u * kept.total) break;
  }
  return last;
}

}  // namespace heddle
