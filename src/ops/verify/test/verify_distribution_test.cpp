// What comes out is distributed as the target: Pearson's test on many draws.

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/ops/verify.h"

#include "ops/verify/test/verify_test_body.h"
#include "random.h"
#include "small_sizes.h"

namespace heddle {
namespace {

using testing::rng;

constexpr int64_t kVocab = 5;
const int64_t kRequests = testing::small_or(15000, 60000);

/// Whether counts could come from the probabilities: Pearson's statistic stays below a bound that
/// it exceeds with a probability of about 4e-11 where they do (Wilson and Hilferty's approximation
/// at 6.5 standard deviations). Cells of probability 0 must be empty.
bool could_come_from(const std::vector<double>& probabilities, const std::vector<int64_t>& counts) {
  double total = 0.0, statistic = 0.0, cells = 0.0;
  for (const int64_t count : counts) total += static_cast<double>(count);
  for (size_t i = 0; i < counts.size(); ++i) {
    const double expected = probabilities[i] * total, count = static_cast<double>(counts[i]);
    if (probabilities[i] == 0.0) {
      if (counts[i] > 0) return false;
      continue;
    }
    if (expected < 20.0) ADD_FAILURE() << "cell " << i << " is too thin for the test: " << expected;
    statistic += (count - expected) * (count - expected) / expected;
    cells += 1.0;
  }
  const double k = cells - 1.0;
  return statistic < k * std::pow(1.0 - 2.0 / (9.0 * k) + 6.5 * std::sqrt(2.0 / (9.0 * k)), 3);
}

/// Distributions of the next token given the last one.
using Model = std::vector<std::vector<float>>;

/// Rows with two zeros each at most, all else at least 4 %.
Model random_model() {
  Model model;
  for (int64_t last = 0; last < kVocab; ++last) {
    std::vector<float> row(size_t(kVocab), 0.0f);
    float sum = 0.0f;
    for (float& x : row) sum += x = static_cast<float>(testing::random_int(10, 60));
    for (int zeros = 0; zeros < 2; ++zeros) {
      float& x = row[size_t(testing::random_int(0, kVocab - 1))];
      sum -= x;
      x = 0.0f;
    }
    for (float& x : row) x /= sum;
    model.push_back(row);
  }
  return model;
}

/// How a request's drafts are made from the draft model.
enum class Drafts { kChain, kOneHotChain, kTree, kTreeWithoutReplacement, kOneHotTree };
constexpr int64_t kChildren = 3, kDepth = 2;

bool is_tree(Drafts drafts) { return drafts >= Drafts::kTree; }
bool uses_q(Drafts drafts) {
  return drafts != Drafts::kOneHotChain && drafts != Drafts::kOneHotTree;
}

void append(std::vector<float>& rows, const std::vector<float>& row) {
  rows.insert(rows.end(), row.begin(), row.end());
}

/// Adds `count` children below `parent`, whose token is `last`.
void add_children(VerifyBatch& batch, const Model& p, const Model& q, Drafts drafts, int64_t parent,
                  int64_t last, int64_t count) {
  std::vector<float> row = q[size_t(last)];
  for (int64_t k = 0; k < count; ++k) {
    int64_t token = draw_plainly(rng(), row.data(), kVocab);
    if (drafts == Drafts::kOneHotTree) token = (last + k + 1) % kVocab;  // any will do
    batch.tokens.push_back(token);
    batch.parents.push_back(parent);
    append(batch.draft_probs, row);
    append(batch.target_probs, p[size_t(token)]);
    if (drafts != Drafts::kTreeWithoutReplacement) continue;
    const float rest = 1.0f - row[size_t(token)];
    if (rest < 1e-3f) return;  // nothing is left to draw
    row[size_t(token)] = 0.0f;
    for (float& x : row) x /= rest;
  }
}

/// Adds a request that goes on after token `last`.
void add_request(VerifyBatch& batch, const Model& p, const Model& q, Drafts drafts, int64_t last,
                 int64_t num_drafts) {
  append(batch.target_probs, p[size_t(last)]);
  const auto begin = static_cast<int64_t>(batch.tokens.size());
  if (is_tree(drafts)) {
    std::vector<int64_t> level{-1};
    for (int64_t depth = 0; depth < kDepth; ++depth) {
      std::vector<int64_t> next;
      for (const int64_t node : level) {
        const auto first = static_cast<int64_t>(batch.tokens.size()) - begin;
        const int64_t token = node < 0 ? last : batch.tokens[size_t(begin + node)];
        add_children(batch, p, q, drafts, node, token, kChildren);
        const auto end = static_cast<int64_t>(batch.tokens.size()) - begin;
        for (int64_t i = first; i < end; ++i) next.push_back(i);
      }
      level = next;
    }
  } else {
    for (int64_t i = 0; i < num_drafts; ++i) {
      add_children(batch, p, q, drafts, i - 1, i == 0 ? last : batch.tokens.back(), 1);
    }
  }
  batch.indptr.push_back(static_cast<int64_t>(batch.tokens.size()));
}

/// Counts of the pairs of the first two tokens after token 0. A request whose first call gives one
/// token alone goes on with a second one, at the step where the first ended.
std::vector<int64_t> count_pairs(const Model& p, const Model& q, Drafts drafts,
                                 int64_t num_drafts) {
  VerifyRun run{.is_tree = is_tree(drafts),
                .stochastic = true,
                .use_q = uses_q(drafts),
                .max_accepted = is_tree(drafts) ? kDepth : num_drafts};
  std::vector<std::vector<int64_t>> texts(static_cast<size_t>(kRequests));
  const int64_t first_seed = testing::random_int(INT64_MIN, INT64_MAX - kRequests);
  for (int round = 0; round < 2; ++round) {
    VerifyBatch batch;
    batch.vocab_size = kVocab;
    std::vector<size_t> requests;
    for (size_t r = 0; r < texts.size(); ++r) {
      if (texts[r].size() >= 2) continue;
      requests.push_back(r);
      add_request(batch, p, q, drafts, texts[r].empty() ? 0 : texts[r].back(), num_drafts);
      batch.seed.push_back(first_seed + static_cast<int64_t>(r));  // neighbours, as users choose
      batch.step.push_back(static_cast<int64_t>(texts[r].size()));
    }
    batch.target_tokens.resize(size_t(batch.num_drafts() + batch.num_seqs()));
    const auto verdicts = run_verify<int64_t, int64_t>(batch, run);
    for (size_t i = 0; i < requests.size(); ++i) {
      auto& text = texts[requests[i]];
      text.insert(text.end(), verdicts[i].tokens.begin(), verdicts[i].tokens.end());
    }
  }
  std::vector<int64_t> counts(size_t(kVocab * kVocab));
  for (const auto& text : texts) ++counts[size_t(text[0] * kVocab + text[1])];
  return counts;
}

std::vector<double> pair_probabilities(const Model& p) {
  std::vector<double> pairs;
  for (const float first : p[0]) {
    const auto& row = p[pairs.size() / size_t(kVocab)];
    for (const float second : row) pairs.push_back(double{first} * double{second});
  }
  return pairs;
}

class VerifyDistribution : public ::testing::TestWithParam<std::pair<Drafts, int>> {};
INSTANTIATE_TEST_SUITE_P(
    Drafts, VerifyDistribution,
    ::testing::Values(std::pair{Drafts::kChain, 1}, std::pair{Drafts::kChain, 2},
                      std::pair{Drafts::kChain, 3}, std::pair{Drafts::kChain, 4},
                      std::pair{Drafts::kOneHotChain, 1}, std::pair{Drafts::kOneHotChain, 3},
                      std::pair{Drafts::kTree, 0}, std::pair{Drafts::kTreeWithoutReplacement, 0},
                      std::pair{Drafts::kOneHotTree, 0}));

TEST_P(VerifyDistribution, TheFirstTwoTokensAreTheTargets) {
  const auto [drafts, num_drafts] = GetParam();
  const Model p = random_model(), q = random_model();
  for (const Model& draft_model : {q, p}) {  // p: a draft model that is always right
    const std::vector<int64_t> counts = count_pairs(p, draft_model, drafts, num_drafts);
    EXPECT_TRUE(could_come_from(pair_probabilities(p), counts));
    EXPECT_FALSE(could_come_from(pair_probabilities(random_model()), counts));
  }
}

/// Draws of one token with a rule for what follows a rejection.
std::vector<int64_t> count_tokens(const std::vector<float>& p, const std::vector<float>& q,
                                  const std::function<float(float, float)>& residual) {
  std::vector<float> rest(p.size());
  for (size_t t = 0; t < p.size(); ++t) rest[t] = residual(p[t], q[t]);
  std::uniform_real_distribution<double> uniform;
  std::vector<int64_t> counts(p.size());
  for (int64_t r = 0; r < kRequests; ++r) {
    const auto draft = size_t(draw_plainly(rng(), q.data(), kVocab));
    const bool accepted = uniform(rng()) * double{q[draft]} < double{p[draft]};
    ++counts[accepted ? draft : size_t(draw_plainly(rng(), rest.data(), kVocab))];
  }
  return counts;
}

TEST(VerifyDistributionCheck, RefusesWrongResampling) {
  const std::vector<float> p{0.3f, 0.3f, 0.2f, 0.1f, 0.1f}, q{0.1f, 0.2f, 0.3f, 0.2f, 0.2f};
  const std::vector<double> want(p.begin(), p.end());
  const auto accepts = [&](const std::function<float(float, float)>& residual) {
    return could_come_from(want, count_tokens(p, q, residual));
  };
  EXPECT_TRUE(accepts([](float x, float y) { return std::max(x - y, 0.0f); }));
  // From the target itself, from what the draft model overrates, and with half of q subtracted.
  EXPECT_FALSE(accepts([](float x, float) { return x; }));
  EXPECT_FALSE(accepts([](float x, float y) { return std::max(y - x, 0.0f); }));
  EXPECT_FALSE(accepts([](float x, float y) { return std::max(x - 0.5f * y, 0.0f); }));
}

}  // namespace
}  // namespace heddle
