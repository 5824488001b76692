#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/ops/sampling.h"

#include "expect_error.h"
#include "ops/sampling/test/sampling_test_body.h"

namespace heddle {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Scored score(const std::vector<float>& logits, const std::vector<int64_t>& tokens, int64_t k,
             ThreadPool* threads = nullptr) {
  const auto rows = std::ssize(tokens), vocab = std::ssize(logits) / rows;
  testing::Mirror host;
  return score_on({.threads = threads}, host, {rows, vocab, vocab, logits}, tokens, k);
}

TEST(TokenLogprobs, AreTheDefinition) {
  ThreadPool threads(3);
  testing::Mirror host;
  for (const int64_t vocab : {1, 2, 17, 1000}) {
    const int64_t k = testing::random_int(1, std::min<int64_t>(vocab, 30));
    expect_scores({.threads = &threads}, host, 6, vocab, k);
  }
}

TEST(TokenLogprobs, AreThoseOfSampleAndOfTheRowAlone) {
  for (const int64_t vocab : {1, 2, 17, 1000}) {
    constexpr int64_t kRows = 6;
    const auto logits = testing::random_normal<float>(size_t(kRows * vocab), 3.0f);
    std::vector<int64_t> tokens;
    for (int64_t r = 0; r < kRows; ++r) tokens.push_back(testing::random_int(0, vocab - 1));
    ThreadPool threads(3);
    const Scored s = score(logits, tokens, 1, &threads);
    for (int64_t r = 0; r < kRows; ++r) {
      const std::vector<float> own(logits.begin() + r * vocab, logits.begin() + (r + 1) * vocab);
      const Scored alone = score(own, {tokens[size_t(r)]}, 0);
      EXPECT_TRUE(testing::same_bits<float>(alone.logprobs, {&s.logprobs[size_t(r)], 1}));
      int32_t best = -1;
      float logprob = 1;
      greedy({}, host_view(&best, {1}), host_view(&logprob, {1}),
             host_view(own.data(), {1, vocab}));
      EXPECT_EQ(best, s.top_ids[size_t(r)]);
      EXPECT_EQ(logprob, s.top_logprobs[size_t(r)]);
    }
  }
}

TEST(TokenLogprobs, DefineTheirBorders) {
  const Scored s = score({kNan, 1.0f, -kInfinity, 1.0f}, {0}, 4);
  EXPECT_EQ(s.top_ids, (std::vector<int32_t>{1, 3, 0, 2}));
  EXPECT_EQ(s.logprobs[0], -kInfinity);
  EXPECT_EQ(s.top_logprobs[2], -kInfinity);
  EXPECT_TRUE(std::isnan(score({1.0f, 2.0f}, {2}, 0).logprobs[0]));
  EXPECT_TRUE(std::isnan(score({1.0f, 2.0f}, {-1}, 0).logprobs[0]));
  EXPECT_EQ(score({kNan, -kInfinity}, {1}, 1).logprobs[0], -kInfinity);
  EXPECT_EQ(testing::message_of([] {
              score({1.0f, 2.0f}, {0}, 3);
            }),
            "top_ids.size(1) is 3, expected 1 to vocab_size = 2");
}

}  // namespace
}  // namespace heddle
