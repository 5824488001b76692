#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/ops/sampling.h"

#include "compare.h"
#include "mirror.h"
#include "ops/sampling/test/adjust_ref.h"
#include "random.h"

namespace heddle {

/// LogitAdjustments of rows with their memory.
struct AdjustColumns {
  std::vector<int32_t> indptr{0}, token_ids, prompt_counts, output_counts;
  std::vector<float> bias, repetition, presence, frequency;

  /// The entries of one more row: its tokens, and those with a bias.
  void add(const ref::RowAdjustment& row) {
    for (size_t i = 0; i < row.bias.size(); ++i) {
      const auto token = static_cast<int32_t>(i);
      const auto in_prompt = std::ranges::count(row.prompt, token);
      const auto in_output = std::ranges::count(row.output, token);
      if (in_prompt == 0 && in_output == 0 && row.bias[i] == 0.0) continue;
      token_ids.push_back(token);
      prompt_counts.push_back(static_cast<int32_t>(in_prompt));
      output_counts.push_back(static_cast<int32_t>(in_output));
      bias.push_back(static_cast<float>(row.bias[i]));
    }
    indptr.push_back(static_cast<int32_t>(token_ids.size()));
    repetition.push_back(static_cast<float>(row.repetition));
    presence.push_back(static_cast<float>(row.presence));
    frequency.push_back(static_cast<float>(row.frequency));
  }
  [[nodiscard]] LogitAdjustments on(testing::Mirror& m) const {
    const auto view = [&m](const auto& values) {
      return ConstTensorView(m(host_view(values.data(), {std::ssize(values)})));
    };
    return {.indptr = view(indptr),
            .token_ids = view(token_ids),
            .prompt_counts = view(prompt_counts),
            .output_counts = view(output_counts),
            .bias = view(bias),
            .repetition = view(repetition),
            .presence = view(presence),
            .frequency = view(frequency)};
  }
};

/// Values that f32 holds, so that the reference has the same. Some rows ask nothing.
inline ref::RowAdjustment random_adjustment(int64_t vocab_size) {
  using testing::pick, testing::random_int;
  ref::RowAdjustment row{.prompt = {},
                         .output = {},
                         .bias = std::vector<double>(size_t(vocab_size)),
                         .repetition = pick({1.0, 1.25, 0.5, 1.7f * 1.0}),
                         .presence = pick({0.0, 0.5, -1.5, 2.0}),
                         .frequency = pick({0.0, 0.25, -0.75, 1.3f * 1.0})};
  if (random_int(0, 3) == 0) return row;
  const auto tokens = [&](std::vector<int32_t>& list) {
    for (int64_t n = random_int(0, 40); n > 0; --n) {
      list.push_back(static_cast<int32_t>(random_int(0, vocab_size - 1)));
    }
  };
  tokens(row.prompt);
  tokens(row.output);
  for (int64_t n = random_int(0, 5); n > 0; --n) {
    row.bias[size_t(random_int(0, vocab_size - 1))] =
        pick<double>({100.0, -100.0, 0.5, -std::numeric_limits<double>::infinity()});
  }
  return row;
}

/// Adjusts random rows and puts them back: what has an entry is the reference, rounded once, and
/// everything else has its bits.
inline void expect_adjusts(const ExecContext& ctx, testing::Mirror& m, int64_t num_rows,
                           int64_t vocab_size) {
  const auto before = testing::random_normal<float>(size_t(num_rows * vocab_size), 4.0f);
  std::vector<ref::RowAdjustment> rows;
  AdjustColumns columns;
  for (int64_t r = 0; r < num_rows; ++r) {
    rows.push_back(random_adjustment(vocab_size));
    columns.add(rows.back());
  }
  std::vector<float> logits = before, saved(columns.token_ids.size(), -7.0f);
  adjust_logits(ctx, m(host_view(logits.data(), {num_rows, vocab_size})),
                m(host_view(saved.data(), {std::ssize(saved)})), columns.on(m));
  m.back();
  for (int64_t r = 0; r < num_rows; ++r) {
    const std::span own(before.data() + r * vocab_size, size_t(vocab_size));
    const std::vector<double> want = ref::adjusted_logits(own, rows[size_t(r)]);
    for (int64_t i = 0; i < vocab_size; ++i) {
      ASSERT_EQ(logits[size_t(r * vocab_size + i)], static_cast<float>(want[size_t(i)]))
          << "row " << r << ", token " << i;
    }
  }
  restore_logits(ctx, m(host_view(logits.data(), {num_rows, vocab_size})),
                 m(ConstTensorView(host_view(saved.data(), {std::ssize(saved)}))), columns.on(m));
  m.back();
  EXPECT_TRUE(testing::same_bits<float>(logits, before));
}

}  // namespace heddle
