#include "heddle/ops/rope.h"

#include <array>
#include <functional>

#include <gtest/gtest.h>

#include "heddle/core/error.h"

#include "compare.h"
#include "exec_context.h"
#include "isa.h"
#include "poison.h"
#include "random.h"
#include "rope_ref.h"

namespace heddle {
namespace {

using testing::pick;
using testing::PoisonedBuffer;
using testing::random_int;

RopeParams random_params(int rotary_dim) {
  RopeParams params{.theta = pick({1e4, 5e5, 1e6, 100.0}), .scale = pick({1.0, 1.0, 2.0, 0.5})};
  params.rotary_dim = rotary_dim;
  if (random_int(0, 1) == 1) {
    params.llama3 = Llama3RopeScaling{.factor = pick({8.0, 32.0}),
                                      .original_max_position = pick({8192.0, 256.0})};
  }
  return params;
}

std::vector<int64_t> random_positions(int64_t n) {
  std::vector<int64_t> positions(static_cast<size_t>(n));
  for (int64_t& p : positions) p = random_int(0, pick<int64_t>({10, 2000, 200000}));
  return positions;
}

// A vector of length 1 in each pair; at theta = 1 every pair turns by the position: the values are
// cos 1 and sin 1.
TEST(Rope, TurnsFirstHalfWithSecondHalf) {
  std::array<float, 4> x{1.0f, 0.0f, 0.0f, 1.0f};
  const std::array<int32_t, 1> positions{1};
  rope(ExecContext{}, host_view(x.data(), {1, 1, 4}), host_view(positions.data(), {1}),
       RopeParams{.theta = 1.0});
  EXPECT_FLOAT_EQ(x[0], 0.540302306f);
  EXPECT_FLOAT_EQ(x[1], -0.841470985f);
  EXPECT_FLOAT_EQ(x[2], 0.841470985f);
  EXPECT_FLOAT_EQ(x[3], 0.540302306f);
}

// The parameters of Llama 3.1 8B: theta 5e5, head size 128. The shortest wavelengths are kept, the longest stretched by 8.
TEST(Rope, Llama3KeepsShortAndStretchesLongWavelengths) {
  const RopeParams plain{.theta = 5e5};
  RopeParams llama3 = plain;
  llama3.llama3 = Llama3RopeScaling{};
  EXPECT_DOUBLE_EQ(rope_frequency(llama3, 128, 0), 1.0);
  EXPECT_DOUBLE_EQ(rope_frequency(llama3, 128, 63), rope_frequency(plain, 128, 63) / 8.0);
  const double between =
      rope_frequency(llama3, 128, 32);  // wavelength 4442: turns 1.84 times in 8192
  EXPECT_LT(between, rope_frequency(plain, 128, 32));
  EXPECT_GT(between, rope_frequency(plain, 128, 32) / 8.0);
  for (int d = 0; d < 64; ++d) {
    EXPECT_NEAR(rope_frequency(llama3, 128, d) / ref::rope_angle(llama3, 128, d, 1), 1.0, 1e-14);
  }
}

TEST(Rope, TableIsExactToOneUlpAtAnyPosition) {
  const int num_pairs = static_cast<int>(random_int(1, 150));
  const RopeParams params = random_params(pick({0, 2 * num_pairs}));
  std::vector<int64_t> positions = random_positions(7);
  positions.push_back(100'000'000);
  const auto n = static_cast<int64_t>(positions.size());
  ThreadPool pool(2);
  for (ThreadPool* threads : {static_cast<ThreadPool*>(nullptr), &pool}) {
    const int64_t stride = num_pairs + 3;
    PoisonedBuffer<float> cos(static_cast<size_t>(n * stride)), sin(cos.size());
    rope_table(testing::context_with(threads), cos.view({n, stride}).narrow(1, 0, num_pairs),
               sin.view({n, stride}).narrow(1, 0, num_pairs), host_view(positions.data(), {n}),
               params);
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
        EXPECT_LE(std::abs(cos[at] - std::cos(angle)), 0x1p-24 + slack);
        EXPECT_LE(std::abs(sin[at] - std::sin(angle)), 0x1p-24 + slack);
      }
    }
    EXPECT_TRUE(cos.guards_intact() && sin.guards_intact());
  }
}

template <class T>
class RopeTyped : public ::testing::Test {};
using Types = ::testing::Types<float, half, bfloat16>;
TYPED_TEST_SUITE(RopeTyped, Types);

// Both forms against the definition, on heads inside a wider row, with gaps that must survive.
TYPED_TEST(RopeTyped, RotatesInPlaceAndNothingElse) {
  ThreadPool pool(3);
  for (const int64_t target : testing::cpu_targets()) {
    const testing::ScopedCpuTarget scope(target);
    for (int round = 0; round < 20; ++round) {
      const int64_t tokens = random_int(0, 40), heads = random_int(1, 5);
      const int head_dim = static_cast<int>(random_int(2, pick({40, 300})));
      const int rotary_dim = random_int(0, 1) == 0
                                 ? head_dim / 2 * 2
                                 : 2 * static_cast<int>(random_int(1, head_dim / 2));
      const int64_t head_stride = head_dim + random_int(0, 3);
      const int64_t token_stride = heads * head_stride + random_int(0, 5);
      const RopeParams params = random_params(rotary_dim);
      const std::vector<int64_t> positions = random_positions(tokens);
      const std::vector<int32_t> positions32(positions.begin(), positions.end());

      PoisonedBuffer<TypeParam> x(static_cast<size_t>(tokens * token_stride));
      std::vector<double> want(x.size(), 0.0);
      std::vector<bool> inside(x.size(), false);
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t h = 0; h < heads; ++h) {
          const auto at = static_cast<size_t>(t * token_stride + h * head_stride);
          const auto row = testing::random_normal<TypeParam>(static_cast<size_t>(head_dim));
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
      PoisonedBuffer<TypeParam> y = x;
      const TensorView x_view(x.view({}).raw(), kDType<TypeParam>, Device{}, shape, strides);
      const TensorView y_view(y.view({}).raw(), kDType<TypeParam>, Device{}, shape, strides);
      const ExecContext ctx = testing::context_with(pick<ThreadPool*>({nullptr, &pool}));
      rope(ctx, x_view, host_view(positions.data(), {tokens}), params);

      const int64_t pairs = rotary_dim / 2;
      PoisonedBuffer<float> cos(static_cast<size_t>(tokens * pairs)), sin(cos.size());
      rope_table(ctx, cos.view({tokens, pairs}), sin.view({tokens, pairs}),
                 host_view(positions32.data(), {tokens}), params);
      rope(ctx, y_view, cos.view({tokens, pairs}), sin.view({tokens, pairs}));
      EXPECT_TRUE(testing::same_bits<TypeParam>({x.data(), x.size()}, {y.data(), y.size()}));

      for (size_t i = 0; i < x.size(); ++i) {
        if (!inside[i]) {
          EXPECT_TRUE(x.untouched(i));
        } else {  // two products and a sum in f32, angles of up to 2e5 radians in double
          const double bound = testing::kRounding<TypeParam> * std::abs(want[i]) + 2e-6;
          EXPECT_LE(std::abs(static_cast<double>(to_float(x[i])) - want[i]), bound) << i;
        }
      }
      EXPECT_TRUE(x.guards_intact() && y.guards_intact());
    }
  }
}

TEST(Rope, FactorsDivideTheFrequencies) {
  const std::array<int32_t, 3> positions{0, 7, 1000};
  const std::array<float, 4> factors{1.0f, 2.0f, 0.5f, 8.0f};
  const RopeParams params{.theta = 500.0};
  PoisonedBuffer<float> cos(12), sin(12);
  rope_table(ExecContext{}, cos.view({3, 4}), sin.view({3, 4}), host_view(positions.data(), {3}),
             params, host_view(factors.data(), {4}));
  for (size_t t = 0; t < 3; ++t) {
    for (size_t d = 0; d < 4; ++d) {
      const double angle = positions[t] * rope_frequency(params, 8, static_cast<int>(d)) /
                           static_cast<double>(factors[d]);
      EXPECT_FLOAT_EQ(cos[t * 4 + d], static_cast<float>(std::cos(angle)));
      EXPECT_FLOAT_EQ(sin[t * 4 + d], static_cast<float>(std::sin(angle)));
    }
  }
  EXPECT_TRUE(cos.guards_intact() && sin.guards_intact());
  EXPECT_THROW(rope_table(ExecContext{}, cos.view({3, 4}), sin.view({3, 4}),
                          host_view(positions.data(), {3}), params, host_view(factors.data(), {3})),
               Error);
}

TEST(Rope, TargetsWithFusedMultiplyAddGiveEqualBits) {
  const std::vector<float> before = testing::random_normal<float>(9 * 70);
  const std::vector<int64_t> positions = random_positions(9);
  std::vector<std::vector<float>> results;
  for (const int64_t target : testing::cpu_targets()) {
    if (!testing::has_fused_multiply_add(target)) continue;
    const testing::ScopedCpuTarget scope(target);
    results.push_back(before);
    rope(ExecContext{}, host_view(results.back().data(), {9, 1, 70}),
         host_view(positions.data(), {9}), RopeParams{});
    EXPECT_TRUE(testing::same_bits<float>(results.front(), results.back()));
  }
}

std::string message(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(Rope, NamesWhatIsWrong) {
  std::vector<float> x(2 * 3 * 8), table(2 * 5);
  const std::vector<int32_t> positions{0, 1};
  const TensorView xv = host_view(x.data(), {2, 3, 8}), wide = host_view(table.data(), {2, 5});
  const ConstTensorView at = host_view(positions.data(), {2});
  const ExecContext ctx;
  EXPECT_EQ(message([&] { rope(ctx, xv, at, RopeParams{.rotary_dim = 10}); }),
            "rotary_dim is 10, expected at most head_dim = 8");
  EXPECT_EQ(message([&] { rope(ctx, xv, at, RopeParams{.rotary_dim = 3}); }),
            "rotary_dim is 3, expected an even number");
  EXPECT_EQ(message([&] { rope(ctx, xv, at.narrow(0, 0, 1), RopeParams{}); }),
            "positions.size(0) is 1, expected num_tokens = 2");
  EXPECT_EQ(message([&] { rope(ctx, xv, wide, wide); }),
            "cos.size(1) is 5, expected at most half of head_dim = 8");
  EXPECT_EQ(message([&] { rope(ctx, xv, xv, RopeParams{}); }), "positions has rank 3, expected 1");
  EXPECT_EQ(message([&] { rope_table(ctx, wide, wide, at, RopeParams{.rotary_dim = 8}); }),
            "cos.size(1) is 5, expected rotary_dim / 2 = 4");
  EXPECT_EQ(message([&] { rope(ctx, xv, at, RopeParams{.theta = 0.0}); }),
            "RopeParams::theta is 0, expected > 0");
}

}  // namespace
}  // namespace heddle
