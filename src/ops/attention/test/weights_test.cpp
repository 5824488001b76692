// The weights of the softmax on the CPU: how exact they are, and that the smallest count.
#include <cmath>

#include <gtest/gtest.h>

#include "isa.h"
#include "ops/attention/test/attention_cases.h"

namespace heddle {
namespace {

/// The outputs of one query of head_dim 1, with the scores and values of its keys, unscaled.
float attend_scores(const std::vector<float>& scores, const std::vector<float>& values) {
  const std::vector<testing::Sequence<float, float>> one{
      {1, std::ssize(scores), {1.0f}, scores, values}};
  return testing::attend({1, 1, 1}, one, {}, {.sm_scale = 1.0f}).o[0];
}

// Of two keys with the scores 0 and x < -18 the weights add up to 1 in f32, so with the values 0
// and 2^100 the output is 2^100 exp(x) without further rounding. One ulp is the bound where the
// multiply-add is fused; where it is not, its products round, too.
TEST(AttentionWeights, AreExponentialsToOneUlp) {
  for (const int64_t target : testing::cpu_targets()) {
    SCOPED_TRACE(testing::cpu_target_name(target));
    const testing::ScopedCpuTarget scope(target);
    const double ulps = testing::has_fused_multiply_add(target) ? 1.0 : 1.5;
    std::vector<testing::Sequence<float, float>> sequences;
    std::vector<float> exponents;
    for (int i = 0; i < 4000; ++i) {
      exponents.push_back(-18.5f - static_cast<float>(testing::random_int(0, 68'000)) / 1000.0f);
      sequences.push_back({1, 2, {1.0f}, {0.0f, exponents.back()}, {0.0f, 0x1p100f}});
    }
    const auto got = testing::attend<float, float>({1, 1, 1}, sequences, {}, {.sm_scale = 1.0f});
    for (size_t i = 0; i < exponents.size(); ++i) {
      const double want = 0x1p100 * std::exp(double{exponents[i]});
      const double ulp = std::exp2(std::floor(std::log2(want)) - 23.0);
      ASSERT_LE(std::abs(got.o[i] - want), ulps * ulp) << "exp(" << exponents[i] << ")";
    }
  }
}

// A key of weight e^-80 counts where its value is e^80: no weight is dropped above e^-87.
TEST(AttentionWeights, TheSmallestCount) {
  for (const float x : {-10.0f, -16.0f, -16.5f, -30.0f, -60.0f, -80.0f, -86.5f}) {
    const auto value = static_cast<float>(std::exp(-double{x}));
    const float got = attend_scores({0.0f, x, -1e4f}, {1.0f, value, 1.0f});
    const double want = (1.0 + std::exp(double{x}) * value) / (1.0 + std::exp(double{x}));
    EXPECT_NEAR(got, want, 1e-5) << "a weight of exp(" << x << ")";
  }
}

// After tiles of keys whose largest score comes last: what was summed before shrinks.
TEST(AttentionWeights, TheSmallestCountAcrossTiles) {
  std::vector<float> scores(1000), values(1000);
  double numerator = 0, sum = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    scores[i] = static_cast<float>(i) * 0.08f;
    values[i] = static_cast<float>(std::exp(40.0 - double{scores[i]}));
    numerator += std::exp(double{scores[i]}) * values[i];
    sum += std::exp(double{scores[i]});
  }
  const float got = attend_scores(scores, values);
  EXPECT_NEAR(got / (numerator / sum), 1.0, 1e-5);
}

// Each query sees the key of its own position alone, which is turned by the same angle and stands
// at a right angle to it: the score is 0 at any position, but for the rounding of cosine and sine.
TEST(AttentionWeights, KeysTurnAsExactlyAsQueries) {
  constexpr int64_t kLength = 300;
  testing::Sequence<float, float> sequence{kLength, kLength, {}, {}, {}};
  for (int64_t i = 0; i < kLength; ++i) {
    for (const float x : {1.0f, 0.0f}) sequence.q.push_back(x);
    for (const float x : {0.0f, 1.0f}) sequence.k.push_back(x);
    for (const float x : {0.5f, 2.0f}) sequence.v.push_back(x);
  }
  const auto got = testing::attend<float, float>(
      {1, 1, 2}, {sequence}, {},
      {.sm_scale = 1000.0f, .window_left = 0, .rope = RopeParams{.theta = 1e4}});
  for (const float lse : got.lse) EXPECT_LE(std::abs(lse), 1000.0f * 0x1p-23f);
}

}  // namespace
}  // namespace heddle
