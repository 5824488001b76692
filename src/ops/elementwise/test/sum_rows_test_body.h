#pragma once

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/ops/elementwise.h"

#include "compare.h"
#include "mirror.h"
#include "ops/elementwise/test/elementwise_ref.h"
#include "poison.h"
#include "random.h"

namespace heddle::testing {

/// sum_rows against the definition, in two parts, which have the bits of f32 additions one after
/// another; rows with gaps.
template <class T>
void check_sum_rows(const ExecContext& ctx, Mirror& on) {
  const int64_t rows = random_int(0, 70), first = random_int(0, rows);
  const int64_t width = pick<int64_t>({1, 7, 16, 33, 576, 5000});
  const int64_t stride = width + random_int(0, 4);
  const std::vector<T> x =
      random_normal<T>(size_t((rows + 1) * stride), pick({0.01f, 1.0f, 60.0f}));
  const ConstTensorView all =
      ConstTensorView(host_view(x.data(), {rows + 1, stride})).narrow(1, 0, width);
  PoisonedBuffer<float> sum(static_cast<size_t>(width));
  sum_rows(ctx, on(sum.view({width})), on(all.narrow(0, 0, first)), SumStart::kZero);
  on.back();
  sum_rows(ctx, on(sum.view({width})), on(all.narrow(0, first, rows - first)), SumStart::kSum);
  on.back();
  EXPECT_TRUE(sum.guards_intact());
  for (int64_t column = 0; column < width; ++column) {
    float want = 0.0f;
    std::vector<double> values;
    for (int64_t row = 0; row < rows; ++row) {
      const float each = to_float(x[size_t(row * stride + column)]);
      want += each;
      values.push_back(double{each});
    }
    const float got = sum[size_t(column)];
    ASSERT_TRUE(same_bits<float>({&got, 1}, {&want, 1})) << column << " of " << rows;
    double magnitude = 0;
    for (const double each : values) magnitude += std::abs(each);
    ASSERT_TRUE(std::abs(double{got} - ref::sum(values)) <=
                magnitude * 0x1p-24 * static_cast<double>(rows + 1));
  }
}

}  // namespace heddle::testing
