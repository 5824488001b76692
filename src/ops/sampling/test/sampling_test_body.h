#pragma once

#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/ops/sampling.h"

#include "compare.h"
#include "cpu/philox.h"
#include "mirror.h"
#include "ops/sampling/test/sampling_cases.h"
#include "ops/sampling/test/sampling_ref.h"
#include "poison.h"
#include "random.h"

namespace heddle {

struct Picked {
  std::vector<int64_t> tokens;
  std::vector<float> logprobs;
};

/// Rows of logits, `stride` apart.
struct SampledRows {
  int64_t num_rows, vocab_size, stride;
  std::vector<float> logits;

  [[nodiscard]] ConstTensorView view() const {
    const std::array<int64_t, 2> shape{num_rows, vocab_size}, strides{stride, 1};
    return {reinterpret_cast<const std::byte*>(logits.data()), DType::kFloat32, {}, shape, strides};
  }
  [[nodiscard]] std::span<const float> row(int64_t r) const {
    return {logits.data() + r * stride, size_t(vocab_size)};
  }
};

inline SamplingRow random_sampling_row(int64_t vocab) {
  using testing::pick;
  return {.temperature = pick({0.0f, 0.05f, 0.7f, 1.0f, 3.0f}),
          .top_k = static_cast<int32_t>(pick<int64_t>({0, -3, 1, 2, 40, vocab / 2, vocab, 99999})),
          .top_p = pick({-1.0f, 0.0f, 0.1f, 0.9f, 0.999f, 1.0f, 2.0f}),
          .min_p = pick({-1.0f, 0.0f, 0.01f, 0.2f, 1.0f}),
          .seed = testing::random_int(INT64_MIN, INT64_MAX),
          .step = testing::random_int(0, pick<int64_t>({1000, int64_t{1} << 60}))};
}

/// Logits with ties, masked tokens and NaN among them; falling as those of a language model, too.
inline std::vector<float> random_logits(size_t n) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> logits = testing::random_normal<float>(n, testing::pick({0.1f, 2.0f, 6.0f}));
  const int64_t kind = testing::random_int(0, 4);
  for (float& x : logits) {
    if (kind == 1) x = std::round(x * 2.0f) / 2.0f;  // -0 and 0, too
    if (kind == 2 && testing::random_int(0, 3) == 0) x = testing::pick({-kInf, kNan});
    if (kind == 3) x = x * x;
  }
  return logits;
}

inline SampledRows random_rows(int64_t num_rows, int64_t vocab_size, int64_t gap) {
  SampledRows rows{num_rows, vocab_size, vocab_size + gap, {}};
  for (int64_t r = 0; r < num_rows; ++r) {
    const std::vector<float> row = random_logits(size_t(rows.stride));
    rows.logits.insert(rows.logits.end(), row.begin(), row.end());
  }
  return rows;
}

/// sample with outputs that have gaps and ids of either width, poisoned; the gaps must stay so.
inline Picked sample_on(const ExecContext& ctx, testing::Mirror& m, const SampledRows& rows,
                        const std::vector<SamplingRow>& options, bool is_int64,
                        bool with_logprobs) {
  const int64_t n = rows.num_rows;
  testing::PoisonedBuffer<int64_t> wide(size_t(2 * n));
  testing::PoisonedBuffer<int32_t> narrow(size_t(2 * n));
  testing::PoisonedBuffer<float> logprobs(size_t(3 * n));
  const std::array<int64_t, 1> shape{n}, two{2}, three{3};
  const TensorView ids =
      is_int64
          ? TensorView(reinterpret_cast<std::byte*>(wide.data()), DType::kInt64, {}, shape, two)
          : TensorView(reinterpret_cast<std::byte*>(narrow.data()), DType::kInt32, {}, shape, two);
  const TensorView logs(reinterpret_cast<std::byte*>(logprobs.data()), DType::kFloat32, {}, shape,
                        three);
  const SamplingColumns columns(options);
  sample(ctx, m(ids), with_logprobs ? m(logs) : TensorView{}, m(rows.view()), columns.on(m));
  m.back();
  Picked picked;
  for (size_t r = 0; r < size_t(n); ++r) {
    picked.tokens.push_back(is_int64 ? wide[2 * r] : narrow[2 * r]);
    picked.logprobs.push_back(logprobs[3 * r]);
    EXPECT_TRUE(is_int64 ? wide.untouched(2 * r + 1) : narrow.untouched(2 * r + 1));
    EXPECT_TRUE(logprobs.untouched(3 * r + 1) && logprobs.untouched(3 * r + 2));
    EXPECT_TRUE(with_logprobs || logprobs.untouched(3 * r));
  }
  EXPECT_TRUE(wide.guards_intact() && narrow.guards_intact() && logprobs.guards_intact());
  return picked;
}

inline int64_t first_argmax(std::span<const float> logits) {
  int64_t best = 0;
  float top = -std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > top) top = logits[i], best = static_cast<int64_t>(i);
  }
  return best;
}

/// Whether the definition, in double, gives the token for u, up to rounding: u may lie a little
/// outside the token's part of [0, 1), and the thresholds may be met a little earlier or later.
inline bool may_draw(int64_t token, double u, std::span<const float> logits,
                     const SamplingRow& row) {
  constexpr double kSlack = 4e-6;
  std::vector<float> finite(logits.begin(), logits.end());
  for (float& x : finite) x = std::isnan(x) ? -std::numeric_limits<float>::infinity() : x;
  for (const double shift : {0.0, -kSlack, kSlack}) {
    const auto c = ref::candidates(
        finite, {row.temperature, row.top_k, row.top_p * (1 + shift), row.min_p * (1 + shift)});
    double before = 0.0, own = 0.0;
    for (size_t i = 0; i < c.tokens.size(); ++i) {
      if (c.tokens[i] < token) before += c.probabilities[i];
      if (c.tokens[i] == token) own = c.probabilities[i];
    }
    if (own > 0.0 && u > before - kSlack && u < before + own + kSlack) return true;
  }
  return false;
}

/// Random rows with random options have a token that the definition has, and its log-probability.
inline void expect_draws(const ExecContext& ctx, testing::Mirror& m, int64_t num_rows,
                         int64_t vocab_size) {
  const SampledRows rows = random_rows(num_rows, vocab_size, testing::random_int(0, 3));
  std::vector<SamplingRow> options;
  for (int64_t r = 0; r < num_rows; ++r) options.push_back(random_sampling_row(vocab_size));
  const Picked picked = sample_on(ctx, m, rows, options, testing::random_int(0, 1) == 1, true);
  for (int64_t r = 0; r < num_rows; ++r) {
    const SamplingRow& row = options[size_t(r)];
    const std::span<const float> own = rows.row(r);
    const int64_t token = picked.tokens[size_t(r)], best = first_argmax(own);
    ASSERT_TRUE(token >= 0 && token < vocab_size);
    const bool is_drawn = own[size_t(best)] > -std::numeric_limits<float>::infinity();
    if (row.temperature == 0.0f || !is_drawn) {
      EXPECT_EQ(token, best);
    } else {
      EXPECT_TRUE(may_draw(token, cpu::uniform_draw(row.seed, row.step), own, row))
          << "token " << token << " of " << vocab_size << ", temperature " << row.temperature
          << ", top_k " << row.top_k << ", top_p " << row.top_p << ", min_p " << row.min_p;
    }
    if (is_drawn) {
      const double want = ref::logprob(own, size_t(token));
      EXPECT_NEAR(picked.logprobs[size_t(r)], want, 2e-6 + 1e-7 * std::abs(want));
    } else {
      EXPECT_EQ(picked.logprobs[size_t(r)], -std::numeric_limits<float>::infinity());
    }
  }
}

struct Scored {
  std::vector<float> logprobs, top_logprobs;
  std::vector<int32_t> top_ids;
};

/// token_logprobs; k = 0: without the most likely ones.
inline Scored score_on(const ExecContext& ctx, testing::Mirror& m, const SampledRows& rows,
                       const std::vector<int64_t>& tokens, int64_t k) {
  const int64_t n = rows.num_rows;
  Scored s{std::vector<float>(size_t(n)), std::vector<float>(size_t(n * k)),
           std::vector<int32_t>(size_t(n * k))};
  token_logprobs(ctx, m(host_view(s.logprobs.data(), {n})),
                 k > 0 ? m(host_view(s.top_ids.data(), {n, k})) : TensorView{},
                 k > 0 ? m(host_view(s.top_logprobs.data(), {n, k})) : TensorView{}, m(rows.view()),
                 m(ConstTensorView(host_view(tokens.data(), {n}))));
  m.back();
  return s;
}

/// The order of choice of `sample` at temperature 1, from its reference. Logits on a grid, so that
/// many are equal.
inline void expect_scores(const ExecContext& ctx, testing::Mirror& m, int64_t num_rows,
                          int64_t vocab_size, int64_t k) {
  SampledRows rows{num_rows, vocab_size, vocab_size, {}};
  rows.logits = testing::random_normal<float>(size_t(num_rows * vocab_size), 3.0f);
  for (float& x : rows.logits) x = std::round(x * 8.0f) / 8.0f;
  std::vector<int64_t> tokens;
  for (int64_t r = 0; r < num_rows; ++r) tokens.push_back(testing::random_int(0, vocab_size - 1));
  const Scored s = score_on(ctx, m, rows, tokens, k);
  for (int64_t r = 0; r < num_rows; ++r) {
    const auto order = ref::candidates(rows.row(r), {1.0f, 0, 1.0, 0.0}).tokens;
    for (int64_t i = 0; i < k; ++i) {
      const int32_t token = s.top_ids[size_t(r * k + i)];
      ASSERT_EQ(token, order[size_t(i)]) << "place " << i << " of " << vocab_size;
      EXPECT_NEAR(s.top_logprobs[size_t(r * k + i)], ref::logprob(rows.row(r), size_t(token)),
                  4e-6);
    }
    const double want = ref::logprob(rows.row(r), size_t(tokens[size_t(r)]));
    EXPECT_NEAR(s.logprobs[size_t(r)], want, 4e-6);
  }
}

}  // namespace heddle
