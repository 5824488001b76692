#include "heddle/ops/rope.h"

#include <array>
#include <functional>

#include <gtest/gtest.h>

#include "heddle/core/error.h"

#include "compare.h"
#include "exec_context.h"
#include "isa.h"
#include "ops/rope/test/rope_test_body.h"
#include "poison.h"
#include "random.h"

namespace heddle {
namespace {

using testing::pick;
using testing::PoisonedBuffer;

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

// The parameters of Llama 3.1 8B: theta 5e5, head size 128. The shortest wavelengths are kept, the
// longest stretched by 8.
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
  ThreadPool pool(2);
  testing::Mirror here;
  for (ThreadPool* threads : {static_cast<ThreadPool*>(nullptr), &pool}) {
    testing::check_rope_table(testing::context_with(threads), here);
  }
}

template <class T>
class RopeTyped : public ::testing::Test {};
using Types = ::testing::Types<float, half, bfloat16>;
TYPED_TEST_SUITE(RopeTyped, Types);

TYPED_TEST(RopeTyped, RotatesInPlaceAndNothingElse) {
  ThreadPool pool(3);
  testing::Mirror here;
  for (const int64_t target : testing::cpu_targets()) {
    const testing::ScopedCpuTarget scope(target);
    for (int round = 0; round < 20; ++round) {
      testing::check_rope<TypeParam>(testing::context_with(pick<ThreadPool*>({nullptr, &pool})),
                                     here);
    }
  }
}

TEST(Rope, FactorsDivideTheFrequencies) {
  testing::Mirror here;
  testing::check_rope_factors({}, here);
  const std::array<int32_t, 3> positions{0, 7, 1000};
  const std::array<float, 3> factors{1.0f, 2.0f, 0.5f};
  const RopeParams params{.theta = 500.0};
  PoisonedBuffer<float> cos(12), sin(12);
  EXPECT_THROW(rope_table(ExecContext{}, cos.view({3, 4}), sin.view({3, 4}),
                          host_view(positions.data(), {3}), params, host_view(factors.data(), {3})),
               Error);
}

TEST(Rope, TargetsWithFusedMultiplyAddGiveEqualBits) {
  const std::vector<float> before = testing::random_normal<float>(9 * 70);
  const std::vector<int64_t> positions = testing::random_positions(9);
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
  EXPECT_EQ(message([&] { rope(ctx, xv, at, RopeParams{.scale = 0.0}); }),
            "RopeParams::scale is 0, expected > 0");
  const auto corrected = [&](const Llama3RopeScaling& llama3) {
    return message([&] { rope(ctx, xv, at, RopeParams{.llama3 = llama3}); });
  };
  EXPECT_EQ(corrected({.factor = 0.0}),
            "Llama3RopeScaling: factor 0 and original_max_position 8192, expected > 0");
  EXPECT_EQ(corrected({.original_max_position = -1.0}),
            "Llama3RopeScaling: factor 8 and original_max_position -1, expected > 0");
  EXPECT_EQ(corrected({.low_freq_factor = 4.0}),
            "Llama3RopeScaling: low_freq_factor 4 must be above 0 and below high_freq_factor 4");
}

}  // namespace
}  // namespace heddle
