#pragma once

#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/ops/sampling.h"

#include "mirror.h"
#include "poison.h"
#include "random.h"

namespace heddle::testing {

/// Tokens with a source are replaced, others stay, also where a source is out of range.
inline void check_take_drawn_tokens(const ExecContext& ctx, Mirror& on, int64_t num_tokens) {
  const int64_t num_drawn = random_int(0, 40);
  const auto n = static_cast<size_t>(num_tokens);
  PoisonedBuffer<int32_t> tokens(n);
  std::vector<int32_t> before, drawn, sources;
  for (int64_t i = 0; i < num_drawn; ++i) drawn.push_back(static_cast<int32_t>(1000 + i));
  for (int64_t i = 0; i < num_tokens; ++i) {
    before.push_back(static_cast<int32_t>(i));
    tokens[size_t(i)] = before.back();
    sources.push_back(static_cast<int32_t>(random_int(-2, num_drawn + 1)));
  }
  if (n > 0) sources[0] = std::numeric_limits<int32_t>::max();
  take_drawn_tokens(ctx, on(tokens.view({num_tokens})),
                    on(ConstTensorView(host_view(drawn.data(), {num_drawn}))),
                    on(ConstTensorView(host_view(sources.data(), {num_tokens}))));
  on.back();
  EXPECT_TRUE(tokens.guards_intact());
  for (size_t i = 0; i < n; ++i) {
    const bool has_source = sources[i] >= 0 && sources[i] < num_drawn;
    EXPECT_EQ(tokens[i], has_source ? drawn[size_t(sources[i])] : before[i]) << i;
  }
}

}  // namespace heddle::testing
