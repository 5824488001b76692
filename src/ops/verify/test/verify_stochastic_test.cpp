#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/ops/verify.h"

#include "expect_error.h"
#include "isa.h"
#include "ops/verify/test/verify_test_body.h"
#include "random.h"
#include "scoped_validation.h"

namespace heddle {
namespace {

using testing::expect_invalid;
using testing::rng;

/// Chains or trees, verified with or without the rows that their drafts were drawn from.
struct Kind {
  bool is_tree, use_q;
};

std::ostream& operator<<(std::ostream& os, const Kind& kind) {
  return os << (kind.is_tree ? "trees" : "chains") << (kind.use_q ? "" : ", one-hot");
}

class VerifyStochastic : public ::testing::TestWithParam<Kind> {
 protected:
  static VerifyRun run_of(int64_t max_accepted) {
    return {.is_tree = GetParam().is_tree,
            .stochastic = true,
            .use_q = GetParam().use_q,
            .max_accepted = max_accepted};
  }
};
INSTANTIATE_TEST_SUITE_P(Kinds, VerifyStochastic,
                         ::testing::Values(Kind{false, true}, Kind{false, false}, Kind{true, true},
                                           Kind{true, false}));

VerifyBatch random_batch(int64_t num_seqs, int64_t vocab_size, bool is_tree, int64_t most) {
  VerifyBatch batch;
  batch.vocab_size = vocab_size;
  for (int64_t seq = 0; seq < num_seqs; ++seq) {
    add_request(rng(), batch,
                {.num_drafts = testing::random_int(0, most),
                 .is_tree = is_tree,
                 .noise = testing::pick({0.1f, 0.5f, 2.0f}),
                 .zeros = testing::pick<int64_t>({0, 2, 10}),
                 .placeholders = testing::pick<int64_t>({0, 4})});
  }
  return batch;
}

/// The batch of request `seq` alone.
VerifyBatch alone(const VerifyBatch& batch, int64_t seq) {
  const int64_t begin = batch.indptr[size_t(seq)], end = batch.indptr[size_t(seq + 1)];
  const auto part = [](const auto& values, int64_t from, int64_t to) {
    return std::decay_t<decltype(values)>(values.begin() + from, values.begin() + to);
  };
  VerifyBatch one;
  one.vocab_size = batch.vocab_size;
  one.indptr = {0, end - begin};
  one.tokens = part(batch.tokens, begin, end);
  one.parents = part(batch.parents, begin, end);
  one.draft_probs = part(batch.draft_probs, begin * one.vocab_size, end * one.vocab_size);
  const int64_t first_row = begin + seq, end_row = end + seq + 1;
  one.target_probs = part(batch.target_probs, first_row * one.vocab_size, end_row * one.vocab_size);
  one.target_tokens = part(batch.target_tokens, first_row, end_row);
  one.seed = {batch.seed[size_t(seq)]};
  one.step = {batch.step[size_t(seq)]};
  return one;
}

TEST_P(VerifyStochastic, DecidesAsTheReferenceOnEveryTarget) {
  for (const int64_t target : testing::cpu_targets()) {
    SCOPED_TRACE(testing::cpu_target_name(target));
    const testing::ScopedCpuTarget scoped(target);
    for (const int64_t vocab : {1, 2, 15, 16, 17, 40, 1023, 1024, 1025, 3000}) {
      const int64_t most = testing::random_int(1, 6);
      const VerifyBatch batch = random_batch(12, vocab, GetParam().is_tree, most);
      VerifyRun run = run_of(testing::random_int(most / 2, most + 1));
      run.gap = testing::random_int(0, 3);
      expect_reference(batch, run, run_verify<int64_t, int32_t>(batch, run));
      expect_reference(batch, run, run_verify<int32_t, int64_t>(batch, run));
    }
  }
}

TEST_P(VerifyStochastic, ARequestDependsOnItselfAloneOnEveryTarget) {
  const int64_t most = 5;
  const VerifyBatch batch = random_batch(40, 2100, GetParam().is_tree, most);
  VerifyRun run = run_of(most);
  const auto together = run_verify<int64_t, int64_t>(batch, run);
  for (const int64_t target : testing::cpu_targets()) {
    SCOPED_TRACE(testing::cpu_target_name(target));
    const testing::ScopedCpuTarget scoped(target);
    for (const int threads : {1, 2, 3}) {
      ThreadPool pool(threads);
      run.threads = &pool;
      EXPECT_EQ((run_verify<int64_t, int64_t>(batch, run)), together);
    }
    run.threads = nullptr;
    for (int64_t seq = 0; seq < batch.num_seqs(); ++seq) {
      EXPECT_EQ((run_verify<int64_t, int64_t>(alone(batch, seq), run)[0]), together[size_t(seq)]);
    }
  }
}

TEST_P(VerifyStochastic, EmptyBatchesAreANoOpAndLargeOnesWork) {
  EXPECT_TRUE((run_verify<int64_t, int64_t>(VerifyBatch{}, run_of(3)).empty()));
  const VerifyBatch batch = random_batch(66000, 3, GetParam().is_tree, 2);
  const VerifyRun run = run_of(2);
  expect_reference(batch, run, run_verify<int32_t, int32_t>(batch, run));
}

TEST_P(VerifyStochastic, WithoutDraftsItDrawsFromTheTarget) {
  const VerifyBatch batch = random_batch(50, 100, GetParam().is_tree, 0);
  const VerifyRun run = run_of(0);
  expect_reference(batch, run, run_verify<int64_t, int64_t>(batch, run));
}

TEST(VerifyStochasticChain, EqualsTheTreeThatIsAChain) {
  const VerifyBatch batch = random_batch(60, 500, false, 6);
  for (const bool use_q : {true, false}) {
    VerifyRun run{.stochastic = true, .use_q = use_q, .max_accepted = 6};
    const auto chains = run_verify<int64_t, int64_t>(batch, run);
    run.is_tree = true;
    EXPECT_EQ((run_verify<int64_t, int64_t>(batch, run)), chains);
  }
}

TEST(VerifyStochasticChain, VocabulariesOfMoreThan512Chunks) {
  const VerifyBatch batch = random_batch(2, 524288 + 77, false, 2);
  for (const bool use_q : {true, false}) {
    const VerifyRun run{.stochastic = true, .use_q = use_q, .max_accepted = 2};
    expect_reference(batch, run, run_verify<int64_t, int64_t>(batch, run));
  }
}

TEST(VerifyStochasticTree, TriesTheFirst64ChildrenOnly) {
  // 70 one-hot children with tokens 0..69 of a target that is uniform over the last six of 70.
  VerifyBatch batch;
  batch.vocab_size = 70;
  for (int64_t seq = 0; seq < 50; ++seq) {
    std::vector<float> row(70, 0.0f);
    for (size_t t = 64; t < 70; ++t) row[t] = 1.0f / 6.0f;
    for (int64_t i = 0; i < 70; ++i) {
      batch.tokens.push_back(i);
      batch.parents.push_back(-1);
    }
    for (int64_t i = 0; i <= 70; ++i) {
      batch.target_probs.insert(batch.target_probs.end(), row.begin(), row.end());
      batch.target_tokens.push_back(0);
    }
    batch.indptr.push_back(batch.num_drafts());
    batch.seed.push_back(testing::random_int(INT64_MIN, INT64_MAX));
    batch.step.push_back(0);
  }
  const VerifyRun run{.is_tree = true, .stochastic = true, .use_q = false, .max_accepted = 1};
  const auto verdicts = run_verify<int64_t, int64_t>(batch, run);
  expect_reference(batch, run, verdicts);
  for (const ref::Verdict& verdict : verdicts) {
    EXPECT_TRUE(verdict.nodes.empty());
    EXPECT_GE(verdict.tokens[0], 64);
  }
}

/// One request with one draft: its verdict for a seed.
ref::Verdict verify_one(const std::vector<float>& p, const std::vector<float>& q, int64_t token,
                        int64_t seed) {
  VerifyBatch batch;
  batch.vocab_size = static_cast<int64_t>(p.size());
  batch.tokens = {token};
  batch.parents = {-1};
  batch.indptr = {0, 1};
  batch.draft_probs = q;
  batch.target_probs = p;
  batch.target_probs.insert(batch.target_probs.end(), p.begin(), p.end());
  batch.target_tokens = {0, 0};
  batch.seed = {seed};
  batch.step = {INT64_MAX};  // the next step is INT64_MIN
  const VerifyRun run{.stochastic = true, .use_q = !q.empty(), .max_accepted = 1};
  return run_verify<int64_t, int64_t>(batch, run)[0];
}

TEST(VerifyStochasticChain, DefinesTheBordersOfItsDomain) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (int repeat = 0; repeat < 40; ++repeat) {
    const int64_t seed = testing::random_int(INT64_MIN, INT64_MAX);
    // The same distribution: always accepted.
    EXPECT_EQ(verify_one({0.3f, 0.7f}, {0.3f, 0.7f}, 0, seed).nodes.size(), 1u);
    // A draft that the draft model would not draw is accepted if the target would draw it.
    EXPECT_EQ(verify_one({0.01f, 0.99f}, {0.0f, 1.0f}, 0, seed).nodes.size(), 1u);
    EXPECT_EQ(verify_one({0.0f, 1.0f}, {0.0f, 1.0f}, 0, seed).tokens[0], 1);
    EXPECT_EQ(verify_one({0.0f, 1.0f}, {1.0f, 0.0f}, 0, seed).tokens, (std::vector<int64_t>{1}));
    // A certain target confirms a one-hot draft, and refuses any other.
    EXPECT_EQ(verify_one({0.0f, 1.0f}, {}, 1, seed).nodes.size(), 1u);
    EXPECT_EQ(verify_one({0.0f, 1.0f}, {}, 0, seed).tokens, (std::vector<int64_t>{1}));
    // Nothing left where q is above p throughout: a draw from p, which gives no token but 1 and 2.
    const ref::Verdict fallback = verify_one({0.0f, 0.4f, 0.6f}, {1.0f, 1.0f, 1.0f}, 0, seed);
    EXPECT_TRUE(fallback.nodes.empty() && fallback.tokens[0] >= 1);
    // NaN counts as 0; without any mass the token is 0.
    EXPECT_EQ(verify_one({kNan, 1.0f, kNan}, {kNan, 0.5f, 0.5f}, 2, seed).tokens[0], 1);
    EXPECT_EQ(verify_one({kNan, 0.0f}, {0.5f, 0.5f}, 1, seed).tokens, (std::vector<int64_t>{0}));
    // Placeholders and tokens past the vocabulary.
    EXPECT_EQ(verify_one({0.0f, 1.0f}, {}, -5, seed).tokens, (std::vector<int64_t>{1}));
    EXPECT_EQ(verify_one({0.0f, 1.0f}, {0.5f, 0.5f}, 2, seed).tokens, (std::vector<int64_t>{1}));
  }
}

/// A call whose tensors a test can make wrong: two requests with one draft each, vocabulary 3.
struct ChainCall {
  ChainCall() = default;
  ChainCall(const ChainCall&) = delete;
  ChainCall& operator=(const ChainCall&) = delete;

  std::vector<int64_t> tokens = std::vector<int64_t>(4), count = std::vector<int64_t>(2);
  std::vector<int64_t> indptr{0, 1, 2}, drafts{2, -1}, seed{1, 2}, step{0, 0};
  // draft_probs[1] and target_probs[3] belong to a placeholder.
  std::vector<float> q{0.5f, 0.0f, 0.5f, 7.0f, 7.0f, 7.0f};
  std::vector<float> p{0.2f, 0.2f, 0.6f, 1.0f, 0.0f, 0.0f, 0.0f, 1.0f, 0.0f, -9.0f, 0.0f, 0.0f};
  ConstTensorView q_view = host_view(q.data(), {2, 3}), p_view = host_view(p.data(), {4, 3});
  ConstTensorView seed_view = host_view(seed.data(), {2}), step_view = host_view(step.data(), {2});
  ConstTensorView drafts_view = host_view(drafts.data(), {2});
  TensorView tokens_view = host_view(tokens.data(), {2, 2}),
             count_view = host_view(count.data(), {2});
  ConstTensorView indptr_view = host_view(indptr.data(), {3});

  void operator()() const {
    verify_stochastic({}, tokens_view, count_view, drafts_view, q_view, p_view, indptr_view,
                      seed_view, step_view);
  }
};

template <class Change>
void expect_refused(ErrorCode code, const char* message, const Change& change) {
  ChainCall call;
  change(call);
  testing::expect_error(code, {message}, call);
}

TEST(VerifyStochasticErrors, NameTensorAxisAndBothValues) {
  const ChainCall good;
  good();
  const auto expect_wrong = [](const char* message, const auto& change) {
    expect_refused(ErrorCode::kInvalidArgument, message, change);
  };
  expect_wrong("target_probs.size(0) is 3, expected num_drafts + num_seqs = 4", [](ChainCall& c) {
    c.p_view = host_view(c.p.data(), {3, 3});
  });
  expect_wrong("draft_probs.size(1) is 2, expected vocab_size = 3", [](ChainCall& c) {
    c.q_view = host_view(c.q.data(), {2, 2});
  });
  expect_wrong("target_probs.size(1) is 0, expected 1 to 2147483647", [](ChainCall& c) {
    c.p_view = host_view(c.p.data(), {4, 0});
  });
  expect_wrong("step.size(0) is 1, expected num_seqs = 2",
               [](ChainCall& c) { c.step_view = host_view(c.step.data(), {1}); });
  expect_wrong("seed has rank 0, expected 1", [](ChainCall& c) { c.seed_view = {}; });
  expect_refused(ErrorCode::kUnsupported, "target_probs is i64, supported: f32", [](ChainCall& c) {
    c.p_view = host_view(c.tokens.data(), {4, 1});
  });
}

TEST(VerifyStochasticErrors, ValidationNamesRowAndValue) {
  const testing::ScopedValidation validation;
  const ChainCall good;
  good();
  const auto expect_wrong = [](const char* message, const auto& change) {
    expect_refused(ErrorCode::kInvalidArgument, message, change);
  };
  expect_wrong("target_probs[2, 1] is nan, expected a probability",
               [](ChainCall& c) { c.p[7] = std::numeric_limits<float>::quiet_NaN(); });
  expect_wrong("draft_probs[0, 1] is -1, expected a probability",
               [](ChainCall& c) { c.q[1] = -1.0f; });
  expect_wrong("target_probs[0, 2] is inf, expected a probability",
               [](ChainCall& c) { c.p[2] = std::numeric_limits<float>::infinity(); });
  expect_wrong("target_probs[1] sums to 2, expected 1", [](ChainCall& c) { c.p[3] = 2.0f; });
  expect_wrong("draft_tokens[0] is 3, expected below vocab_size = 3",
               [](ChainCall& c) { c.drafts[0] = 3; });
  expect_wrong("draft_indptr[1] is 3, expected at most num_drafts = 2",
               [](ChainCall& c) { c.indptr[1] = 3; });
  expect_wrong("draft_probs[0] sums to 0.5, expected 1", [](ChainCall& c) { c.q[0] = 0.0f; });
  expect_wrong("step[1] is -2, expected at least 0", [](ChainCall& c) { c.step[1] = -2; });
}

TEST(VerifyStochasticErrors, ValidationCoversTrees) {
  const testing::ScopedValidation validation;
  const auto run = [](const std::vector<int32_t>& mask, const auto& change) {
    ChainCall c;
    change(c);
    std::vector<int32_t> nodes(2);
    verify_tree_stochastic({}, c.tokens_view, c.count_view, host_view(nodes.data(), {2, 1}),
                           c.drafts_view, c.q_view, c.p_view, host_view(mask.data(), {2, 1}),
                           c.indptr_view, c.seed_view, c.step_view);
  };
  run({1, 1}, [](ChainCall&) {});
  expect_invalid({"tree_mask[1, 0] is 0x3, expected 0x1"}, [&] { run({1, 3}, [](ChainCall&) {}); });
  expect_invalid({"node_indptr[2] is 0, expected at least node_indptr[1] = 1"}, [&] {
    run({1, 1}, [](ChainCall& c) { c.indptr[2] = 0; });
  });
  expect_invalid({"target_probs[1, 2] is -1, expected a probability"}, [&] {
    run({1, 1}, [](ChainCall& c) { c.p[5] = -1.0f; });
  });
}

}  // namespace
}  // namespace heddle
