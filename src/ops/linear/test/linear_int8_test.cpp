#include <gtest/gtest.h>

#include "compare.h"
#include "expect_error.h"
#include "isa.h"
#include "ops/linear/test/int8_ref.h"
#include "ops/linear/test/linear_cases.h"
#include "poison.h"
#include "random.h"

namespace heddle {
namespace {

using testing::PoisonedBuffer;
using testing::random_int;

constexpr WeightType kBlockTypes[] = {WeightType::kQ8_0, WeightType::kQ4_0, WeightType::kQ4_1,
                                      WeightType::kQ5_0, WeightType::kQ5_1, WeightType::kQ4K,
                                      WeightType::kQ5K,  WeightType::kQ6K};

struct Case {
  WeightType type;
  int64_t out, in, tokens;
  std::vector<std::byte> stored;
  std::vector<float> x;

  Case(WeightType t, int64_t num_out, int64_t num_in, int64_t num_tokens)
      : type(t),
        out(num_out),
        in(num_in),
        tokens(num_tokens),
        stored(random_stored(type, out * in, testing::rng())),
        x(testing::random_normal<float>(static_cast<size_t>(tokens * in))) {}
};

int64_t random_in(WeightType type) {
  return block_size(type) * random_int(1, block_size(type) == 256 ? 3 : 20);
}

/// x and y have gaps between their rows; those of x hold NaN, those of y must stay.
std::vector<float> product(const Case& c, int num_threads) {
  constexpr int64_t kGap = 3;
  const OwnedWeight weight(ExecContext{}, c.type, c.out, c.in, c.stored);
  PoisonedBuffer<float> x(size_t(c.tokens * (c.in + kGap))), y(size_t(c.tokens * (c.out + kGap)));
  for (int64_t t = 0; t < c.tokens; ++t) {
    std::copy_n(&c.x[size_t(t * c.in)], c.in, x.data() + t * (c.in + kGap));
  }
  PoisonedBuffer<std::byte> memory(
      linear_workspace_bytes(c.tokens, c.in, LinearActivations::kInt8));
  Workspace workspace(std::span(memory.data(), memory.size()));
  ThreadPool threads(num_threads);
  ExecContext ctx;
  ctx.threads = &threads;
  ctx.workspace = &workspace;
  linear(ctx, y.view({c.tokens, c.out + kGap}).narrow(1, 0, c.out),
         x.view({c.tokens, c.in + kGap}).narrow(1, 0, c.in), weight.view(),
         LinearActivations::kInt8);
  EXPECT_TRUE(y.guards_intact() && memory.guards_intact());
  std::vector<float> result;
  for (int64_t t = 0; t < c.tokens; ++t) {
    const float* row = y.data() + t * (c.out + kGap);
    result.insert(result.end(), row, row + c.out);
    for (int64_t i = c.out; i < c.out + kGap; ++i) {
      EXPECT_TRUE(y.untouched(size_t(t * (c.out + kGap) + i)));
    }
  }
  return result;
}

class LinearInt8Test : public ::testing::TestWithParam<WeightType> {
 protected:
  static void check(const Case& c) {
    for (const int64_t target : testing::cpu_targets()) {
      const testing::ScopedCpuTarget scoped(target);
      const auto kind = testing::has_fused_multiply_add(target) ? ref::MultiplyAdd::kFused
                                                                : ref::MultiplyAdd::kRoundedTwice;
      const auto want = ref::int8_linear(c.type, c.stored, c.x, c.out, c.in, kind);
      for (const int num_threads : {1, 3}) {
        ASSERT_TRUE(testing::same_bits<float>(product(c, num_threads), want))
            << testing::cpu_target_name(target) << ", " << num_threads << " threads, " << c.tokens
            << " x " << c.out << " x " << c.in;
      }
    }
  }
};

TEST_P(LinearInt8Test, HasTheBitsOfTheDefinitionForAnyNumberOfRows) {
  for (const int64_t tokens : {1, 2, 3, 5, 6, 7, 12, 13, 29}) {
    check(Case(GetParam(), random_int(1, 90), random_in(GetParam()), tokens));
    if (HasFatalFailure()) return;
  }
}

TEST_P(LinearInt8Test, HasTheBitsOfTheDefinitionForRaggedOutputs) {
  for (const int64_t out : {1, 15, 16, 17, 33, 64, 65, 200}) {
    check(Case(GetParam(), out, random_in(GetParam()), testing::pick<int64_t>({1, 4, 10})));
    if (HasFatalFailure()) return;
  }
}

/// Against weights and x in double: x is off by half a step of its block, a 254th of its largest.
TEST_P(LinearInt8Test, IsTheProductUpToTheRoundingOfX) {
  const Case c(GetParam(), 40, 512, 9);
  const std::vector<float> y = product(c, 2);
  for (int64_t t = 0; t < c.tokens; ++t) {
    for (int64_t o = 0; o < c.out; ++o) {
      double want = 0, bound = 0;
      for (int64_t k = 0; k < c.in; ++k) {
        const double w = ref::weight(c.type, c.stored.data(), o * c.in + k);
        const float* const block = &c.x[size_t(t * c.in + k / 32 * 32)];
        const double most = std::abs(*std::max_element(
            block, block + 32, [](float a, float b) { return std::abs(a) < std::abs(b); }));
        const double x = c.x[size_t(t * c.in + k)];
        want += w * x;
        bound += std::abs(w) * (most / 253.9) + std::abs(w * x) * 1e-4;
      }
      EXPECT_TRUE(std::abs(double(y[size_t(t * c.out + o)]) - want) <= bound)
          << "row " << t << " output " << o;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(BlockTypes, LinearInt8Test, ::testing::ValuesIn(kBlockTypes),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST(LinearInt8, TakesRowsBeyondOneBlockOfRowsAndExtremeNumbers) {
  Case c(WeightType::kQ8_0, 4, 2752, 200);
  for (size_t i = 0; i < 32; ++i) c.x[i] = 0.0f;                       // a block of zeros,
  for (size_t i = 32; i < 64; ++i) c.x[i] *= 0x1p-140f;                // of subnormals,
  for (size_t i = 64; i < 96; ++i) c.x[i] *= 0x1p100f;                 // of large numbers,
  for (size_t i = 96; i < 128; ++i) c.x[i] = i % 2 == 0 ? 3.f : -3.f;  // and of largest codes
  const std::vector<float> want =
      ref::int8_linear(c.type, c.stored, c.x, c.out, c.in, ref::MultiplyAdd::kFused);
  for (const int64_t target : testing::cpu_targets()) {
    if (!testing::has_fused_multiply_add(target)) continue;
    const testing::ScopedCpuTarget scoped(target);
    EXPECT_TRUE(testing::same_bits<float>(product(c, 2), want)) << testing::cpu_target_name(target);
  }
}

TEST(LinearInt8, KeepsWhatIsNotFiniteToItsRow) {
  for (const float value : {NAN, INFINITY, -INFINITY}) {
    Case c(WeightType::kQ4_0, 40, 64, 20);
    c.x[size_t(7 * c.in + random_int(0, 63))] = value;
    for (const int64_t target : testing::cpu_targets()) {
      const testing::ScopedCpuTarget scoped(target);
      const std::vector<float> y = product(c, 1);
      for (int64_t i = 0; i < c.tokens * c.out; ++i) {
        ASSERT_EQ(std::isnan(y[size_t(i)]), i / c.out == 7) << value << ", " << i;
      }
    }
  }
}

TEST(LinearInt8, LeavesDenseWeightsToF32) {
  for (const WeightType type : {WeightType::kF32, WeightType::kF16, WeightType::kBF16}) {
    const Case c(type, 33, 64, 7);
    const OwnedWeight weight(ExecContext{}, type, c.out, c.in, c.stored);
    PoisonedBuffer<float> f32(size_t(c.tokens * c.out)), int8(f32.size());
    const ConstTensorView x = host_view(c.x.data(), {c.tokens, c.in});
    linear({}, f32.view({c.tokens, c.out}), x, weight.view());
    linear({}, int8.view({c.tokens, c.out}), x, weight.view(), LinearActivations::kInt8);
    EXPECT_TRUE(testing::same_bits<float>({f32.data(), f32.size()}, {int8.data(), int8.size()}));
  }
}

TEST(LinearInt8, TakesNoTokensAndNeedsItsWorkspace) {
  const OwnedWeight weight(WeightType::kQ8_0, 40, 64);
  std::vector<float> x(128), y(80);
  const auto call = [&](int64_t tokens) {
    return testing::message_of([&] {
      linear({}, host_view(y.data(), {tokens, 40}), host_view(x.data(), {tokens, 64}),
             weight.view(), LinearActivations::kInt8);
    });
  };
  EXPECT_EQ(call(0), "no error");
  EXPECT_NE(call(2).find("linear"), std::string::npos) << call(2);
  EXPECT_EQ(linear_workspace_bytes(5, 64, LinearActivations::kFloat32), size_t{0});
}

}  // namespace
}  // namespace heddle
