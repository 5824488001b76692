#pragma once

#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/ops/elementwise.h"

#include "compare.h"
#include "mirror.h"
#include "poison.h"
#include "random.h"

namespace heddle::testing {

/// round_to against from_float, rows with gaps, values of all sizes.
template <class T>
void check_round_to(const ExecContext& ctx, Mirror& on) {
  const int64_t rows = random_int(1, 6), width = pick<int64_t>({1, 7, 16, 33, 576, 5000});
  const int64_t gap = random_int(0, 4), stride = width + gap;
  std::vector<float> x = random_normal<float>(size_t(rows * stride), pick({1e-7f, 1.0f, 3e4f}));
  x[0] = pick({0.0f, std::numeric_limits<float>::infinity(), 3.4e38f, 1e-40f});
  PoisonedBuffer<T> y(size_t(rows * stride));
  round_to(ctx, on(y.view({rows, stride}).narrow(1, 0, width)),
           on(ConstTensorView(host_view(x.data(), {rows, stride}).narrow(1, 0, width))));
  on.back();
  EXPECT_TRUE(y.guards_intact());
  for (int64_t i = 0; i < rows * stride; ++i) {
    const auto at = static_cast<size_t>(i);
    if (i % stride >= width) {
      ASSERT_TRUE(y.untouched(at)) << i;
    } else {
      const T want = from_float<T>(x[at]);
      ASSERT_TRUE(same_bits<T>({&y[at], 1}, {&want, 1})) << x[at];
    }
  }
}

}  // namespace heddle::testing
