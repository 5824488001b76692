#pragma once

// Random calls of the rotary operations against their definitions, on any device.

#include <array>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/ops/rope.h"

#include "ops/rope/test/rope_ref.h"
#include "testing/compare.h"
#include "testing/mirror.h"
#include "testing/poison.h"
#include "testing/random.h"

namespace heddle::testing {

inline RopeParams random_rope_params(const ExecContext& ctx, int rotary_dim) {
  RopeParams params{.theta = pick({1e4, 5e5, 1e6, 100.0}), .scale = pick({1.0, 1.0, 2.0, 0.5})};
  params.rotary_dim = rotary_dim;
  const int64_t correction = random_int(0, 3);  // none in half of the calls
  if (correction == 0) {
    params.yarn = YarnRopeScaling{.factor = pick({4.0, 40.0}),
                                  .original_max_position = pick({4096.0, 32768.0, 20.0}),
                                  .beta_fast = pick({32.0, 24.0}),
                                  .beta_slow = pick({1.0, 2.0}),
                                  .truncate = random_int(0, 1) == 1};
  } else if (correction == 1) {
    params.llama3 = Llama3RopeScaling{.factor = pick({8.0, 32.0}),
                                      .low_freq_factor = pick({1.0, 0.5, 2.0}),
                                      .high_freq_factor = pick({4.0, 3.0, 16.0}),
                                      .original_max_position = pick({8192.0, 256.0})};
  }
  if (ctx.device.type == DeviceType::kCpu) params.attention_factor = pick({1.0, 1.0, 1.25, 0.8});
  return params;
}

inline std::vector<int64_t> random_positions(int64_t n) {
  std::vector<int64_t> positions(static_cast<size_t>(n));
  for (int64_t& p : positions) p = random_int(0, pick<int64_t>({10, 2000, 200000}));
  return positions;
}

inline void check_rope_table(const ExecContext& ctx, Mirror& mirror) {
  const int num_pairs = static_cast<int>(random_int(1, 150));
  RopeParams params = random_rope_params(ctx, pick({0, 2 * num_pairs}));
  params.attention_factor = pick({1.0, 1.0, 1.25, 0.8});
  std::vector<int64_t> positions = random_positions(7);
  positions.push_back(100'000'001);  // more than f32 holds
  const auto n = static_cast<int64_t>(positions.size());
  const int64_t stride = num_pairs + 3;
  PoisonedBuffer<float> cos(static_cast<size_t>(n * stride)), sin(cos.size());
  rope_table(ctx, mirror(cos.view({n, stride}).narrow(1, 0, num_pairs)),
             mirror(sin.view({n, stride}).narrow(1, 0, num_pairs)),
             mirror(ConstTensorView(host_view(positions.data(), {n}))), params);
  mirror.back();
  const bool rounds_twice = ctx.device.type != DeviceType::kCpu;
  for (int64_t t = 0; t < n; ++t) {
    for (int d = 0; d < stride; ++d) {
      const auto at = static_cast<size_t>(t * stride + d);
      if (d >= num_pairs) {
        EXPECT_TRUE(cos.untouched(at) && sin.untouched(at));
        continue;
      }
      // The product position * frequency rounds in double, which matters at large angles only.
      const double angle = ref::rope_angle(params, 2 * num_pairs, d, positions[size_t(t)]);
      const double slack = std::abs(angle) * 0x1p-50;
      const double factor = params.attention_factor;
      const double bound = (rounds_twice && factor != 1.0 ? 0x1.4p-23 : 0x1p-24) + 2 * slack;
      EXPECT_LE(std::abs(cos[at] - factor * std::cos(angle)), bound) << angle;
      EXPECT_LE(std::abs(sin[at] - factor * std::sin(angle)), bound) << angle;
    }
  }
  EXPECT_TRUE(cos.guards_intact() && sin.guards_intact());
}

/// Both forms against the definition, on heads inside a wider row, with gaps that must survive.
template <class T>
void check_rope(const ExecContext& ctx, Mirror& mirror) {
  const int64_t tokens = random_int(0, 40), heads = random_int(1, 5);
  const int head_dim = static_cast<int>(
      pick<int64_t>({64, 80, 96, 112, 128, 192, 256, random_int(2, pick({40, 600}))}));
  const int rotary_dim =
      random_int(0, 1) == 0 ? head_dim / 2 * 2 : 2 * static_cast<int>(random_int(1, head_dim / 2));
  const int64_t head_stride = head_dim + pick<int64_t>({0, 0, 8, random_int(0, 3)});
  const int64_t token_stride = heads * head_stride + pick<int64_t>({0, 0, 16, random_int(0, 5)});
  const RopeParams params = random_rope_params(ctx, rotary_dim);
  const std::vector<int64_t> positions = random_positions(tokens);
  const std::vector<int32_t> positions32(positions.begin(), positions.end());

  PoisonedBuffer<T> x(static_cast<size_t>(tokens * token_stride));
  std::vector<double> want(x.size(), 0.0);
  std::vector<bool> inside(x.size(), false);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      const auto at = static_cast<size_t>(t * token_stride + h * head_stride);
      const auto row = random_normal<T>(static_cast<size_t>(head_dim));
      for (size_t d = 0; d < row.size(); ++d) {
        x[at + d] = row[d];
        want[at + d] = to_float(row[d]);
        inside[at + d] = true;
      }
      ref::rope(&want[at], head_dim, positions[size_t(t)], params);
    }
  }
  const std::array<int64_t, 3> shape{tokens, heads, head_dim};
  const std::array<int64_t, 3> strides{token_stride, head_stride, 1};
  PoisonedBuffer<T> y = x;
  const TensorView x_view(x.view({}).raw(), kDType<T>, Device{}, shape, strides);
  const TensorView y_view(y.view({}).raw(), kDType<T>, Device{}, shape, strides);
  rope(ctx, mirror(x_view), mirror(ConstTensorView(host_view(positions.data(), {tokens}))), params);
  const int64_t pairs = rotary_dim / 2, cos_row = pairs + 1, sin_row = pairs + 2;
  PoisonedBuffer<float> cos(static_cast<size_t>(tokens * cos_row));
  PoisonedBuffer<float> sin(static_cast<size_t>(tokens * sin_row));
  const TensorView cos_view = cos.view({tokens, cos_row}).narrow(1, 0, pairs);
  const TensorView sin_view = sin.view({tokens, sin_row}).narrow(1, 0, pairs);
  rope_table(ctx, mirror(cos_view), mirror(sin_view),
             mirror(ConstTensorView(host_view(positions32.data(), {tokens}))), params);
  mirror.back();
  rope(ctx, mirror(y_view), mirror(ConstTensorView(cos_view)), mirror(ConstTensorView(sin_view)));
  mirror.back();
  EXPECT_TRUE(same_bits<T>({x.data(), x.size()}, {y.data(), y.size()}));

  for (size_t i = 0; i < x.size(); ++i) {
    if (!inside[i]) {
      EXPECT_TRUE(x.untouched(i));
    } else {  // two products and a sum in f32, angles of up to 2e5 radians in double
      const double bound = kRounding<T> * std::abs(want[i]) + 2e-6;
      EXPECT_LE(std::abs(static_cast<double>(to_float(x[i])) - want[i]), bound) << i;
    }
  }
  EXPECT_TRUE(x.guards_intact() && y.guards_intact());
}

/// Factors of narrow and wide heads, whose angles are computed some pairs at a time.
inline void check_rope_factors(const ExecContext& ctx, Mirror& mirror) {
  const std::array<int32_t, 3> positions{0, 7, 1000};
  for (const int num_pairs : {4, 63, 64, 65, 128, 150}) {
    const RopeParams params{.theta = 500.0};
    std::vector<float> factors;
    for (int d = 0; d < num_pairs; ++d) factors.push_back(0.5f + static_cast<float>(d) / 16.0f);
    const auto size = static_cast<size_t>(3 * num_pairs);
    PoisonedBuffer<float> cos(size), sin(size);
    rope_table(ctx, mirror(cos.view({3, num_pairs})), mirror(sin.view({3, num_pairs})),
               mirror(ConstTensorView(host_view(positions.data(), {3}))), params,
               mirror(ConstTensorView(host_view(factors.data(), {num_pairs}))));
    mirror.back();
    for (size_t t = 0; t < 3; ++t) {
      for (size_t d = 0; d < factors.size(); ++d) {
        const double angle =
            ref::rope_angle(params, 2 * num_pairs, static_cast<int>(d), positions[t]) /
            static_cast<double>(factors[d]);
        const size_t at = t * factors.size() + d;
        EXPECT_NEAR(cos[at], std::cos(angle), 0x1p-24 + 1e-12) << d << " of " << num_pairs;
        EXPECT_NEAR(sin[at], std::sin(angle), 0x1p-24 + 1e-12) << d << " of " << num_pairs;
      }
    }
    EXPECT_TRUE(cos.guards_intact() && sin.guards_intact());
  }
}

}  // namespace heddle::testing
