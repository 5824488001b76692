#pragma once

#include <cstdint>

#include "ops/sampling/draw/weight.h"

namespace heddle {

/// The logits of one row; NaN counts as -infinity throughout.
struct LogitRow {
  const float* logits;  // [vocab_size]
  int64_t vocab_size;
};

/// The place of a token in the order of choice, larger logits first, equal ones by id: ascending
/// numbers.
using OrderKey = uint64_t;
[[nodiscard, gnu::always_inline]] inline OrderKey order_key(float logit, int64_t token) {
  const float x = logit == logit ? logit : -sampling::kInfinity;
  return uint64_t{~sampling::ascending_bits(x)} << 32 | uint64_t(token);
}
[[nodiscard]] inline int32_t token_of(OrderKey key) { return static_cast<int32_t>(uint32_t(key)); }

namespace cpu::sampling {

/// The largest logit, -infinity for a row of nothing else.
float largest_logit(const LogitRow& row);

/// The lowest token whose logit equals `largest`; one has to.
int64_t first_token_with(const LogitRow& row, float largest);

/// The sum of the units (ops/sampling/draw/weight.h) of all logits. weights: [vocab_size] takes the
/// weights, or is nullptr.
uint64_t sum_weights(const LogitRow& row, float largest, float temperature, float* weights);

/// Writes the keys of the tokens whose weight is in [low, high) to `keys`, by token; returns their
/// number.
int64_t keys_of_weights(const LogitRow& row, const float* weights, float low, float high,
                        OrderKey* keys);

}  // namespace cpu::sampling
}  // namespace heddle
