#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/ops/sampling.h"

#include "compare.h"
#include "expect_error.h"
#include "ops/sampling/test/sampling_ref.h"
#include "random.h"

namespace heddle {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Scored {
  std::vector<float> logprobs, top_logprobs;
  std::vector<int32_t> top_ids;
};

Scored score(const std::vector<float>& logits, const std::vector<int64_t>& tokens, int64_t k,
             ThreadPool* threads = nullptr) {
  const auto rows = std::ssize(tokens), vocab = std::ssize(logits) / rows;
  Scored s{std::vector<float>(size_t(rows)), std::vector<float>(size_t(rows * k)),
           std::vector<int32_t>(size_t(rows * k))};
  token_logprobs({.threads = threads}, host_view(s.logprobs.data(), {rows}),
                 k > 0 ? host_view(s.top_ids.data(), {rows, k}) : TensorView{},
                 k > 0 ? host_view(s.top_logprobs.data(), {rows, k}) : TensorView{},
                 host_view(logits.data(), {rows, vocab}), host_view(tokens.data(), {rows}));
  return s;
}

/// The order of choice of `sample` at temperature 1, from its reference. Logits on a grid, so that
/// many are equal.
TEST(TokenLogprobs, AreTheDefinition) {
  for (const int64_t vocab : {1, 2, 17, 1000}) {
    constexpr int64_t kRows = 6;
    auto logits = testing::random_normal<float>(size_t(kRows * vocab), 3.0f);
    for (float& x : logits) x = std::round(x * 8.0f) / 8.0f;
    std::vector<int64_t> tokens;
    for (int64_t r = 0; r < kRows; ++r) tokens.push_back(testing::random_int(0, vocab - 1));
    const int64_t k = testing::random_int(1, std::min<int64_t>(vocab, 30));
    ThreadPool threads(3);
    const Scored s = score(logits, tokens, k, &threads);
    for (int64_t r = 0; r < kRows; ++r) {
      const std::vector<float> own(logits.begin() + r * vocab, logits.begin() + (r + 1) * vocab);
      const auto order = ref::candidates(own, {1.0f, 0, 1.0, 0.0}).tokens;
      for (int64_t i = 0; i < k; ++i) {
        const int32_t token = s.top_ids[size_t(r * k + i)];
        EXPECT_EQ(token, order[size_t(i)]) << "place " << i << " of " << vocab;
        EXPECT_NEAR(s.top_logprobs[size_t(r * k + i)], ref::logprob(own, size_t(token)), 4e-6);
      }
      EXPECT_NEAR(s.logprobs[size_t(r)], ref::logprob(own, size_t(tokens[size_t(r)])), 4e-6);
      const Scored alone = score(own, {tokens[size_t(r)]}, 0);
      EXPECT_TRUE(testing::same_bits<float>(alone.logprobs, {&s.logprobs[size_t(r)], 1}));
      // sample gives the very same bits.
      int32_t best = -1;
      float logprob = 1;
      greedy({}, host_view(&best, {1}), host_view(&logprob, {1}),
             host_view(own.data(), {1, vocab}));
      EXPECT_EQ(best, s.top_ids[size_t(r * k)]);
      EXPECT_EQ(logprob, s.top_logprobs[size_t(r * k)]);
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
