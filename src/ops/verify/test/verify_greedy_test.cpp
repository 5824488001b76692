#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/config.h"
#include "heddle/ops/verify.h"

#include "expect_error.h"
#include "ops/verify/test/verify_test_body.h"
#include "random.h"
#include "scoped_validation.h"
#include "small_sizes.h"

namespace heddle {
namespace {

using testing::expect_invalid;
using testing::rng;

VerifyBatch random_batch(int64_t num_seqs, bool is_tree, int64_t most) {
  VerifyBatch batch;
  batch.vocab_size = 3;  // so that siblings are often equal
  for (int64_t seq = 0; seq < num_seqs; ++seq) {
    add_request(rng(), batch,
                {.num_drafts = testing::random_int(0, most),
                 .is_tree = is_tree,
                 .placeholders = testing::pick<int64_t>({0, 5})});
  }
  return batch;
}

class VerifyGreedy : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(ChainsAndTrees, VerifyGreedy, ::testing::Bool());

TEST_P(VerifyGreedy, AcceptsWhatTheReferenceAccepts) {
  for (const int64_t most : {0, 1, 4, 31, 33, 70, 130}) {
    for (int repeat = 0; repeat < testing::small_or(1, 5); ++repeat) {
      const VerifyBatch batch = random_batch(testing::random_int(1, 40), GetParam(), most);
      VerifyRun run{.is_tree = GetParam()};
      // The last: too narrow for some of the requests.
      for (const int64_t max_accepted : {most, most + 3, most / 2}) {
        run.max_accepted = max_accepted;
        run.gap = testing::random_int(0, 3);
        expect_reference(batch, run, run_verify<int32_t, int32_t>(batch, run));
        expect_reference(batch, run, run_verify<int64_t, int32_t>(batch, run));
        expect_reference(batch, run, run_verify<int32_t, int64_t>(batch, run));
        expect_reference(batch, run, run_verify<int64_t, int64_t>(batch, run));
      }
    }
  }
}

TEST_P(VerifyGreedy, ARequestDependsOnItselfAlone) {
  VerifyRun run{.is_tree = GetParam(), .max_accepted = 12};
  const VerifyBatch batch = random_batch(1200, GetParam(), 12);
  const auto together = run_verify<int64_t, int64_t>(batch, run);
  expect_reference(batch, run, together);
  for (const int threads : {2, 3}) {
    ThreadPool pool(threads);
    run.threads = &pool;
    EXPECT_EQ((run_verify<int64_t, int64_t>(batch, run)), together);
  }
}

TEST_P(VerifyGreedy, LargeBatchesOfSmallRequests) {
  const VerifyRun run{.is_tree = GetParam(), .max_accepted = 2};
  const VerifyBatch batch = random_batch(70000, GetParam(), 2);
  expect_reference(batch, run, run_verify<int32_t, int32_t>(batch, run));
}

TEST_P(VerifyGreedy, EmptyBatchesAreANoOp) {
  const VerifyRun run{.is_tree = GetParam(), .max_accepted = 3};
  EXPECT_TRUE((run_verify<int64_t, int64_t>(VerifyBatch{}, run).empty()));
}

/// One request; each row of the batch is written out.
VerifyBatch chain(std::vector<int64_t> tokens, std::vector<int64_t> target_tokens) {
  VerifyBatch batch;
  batch.tokens = std::move(tokens);
  batch.target_tokens = std::move(target_tokens);
  batch.indptr = {0, batch.num_drafts()};
  for (int64_t i = 0; i < batch.num_drafts(); ++i) batch.parents.push_back(i - 1);
  batch.seed = batch.step = {0};
  return batch;
}

std::vector<int64_t> tokens_of(const VerifyBatch& batch, int64_t max_accepted) {
  return run_verify<int64_t, int64_t>(batch, {.max_accepted = max_accepted})[0].tokens;
}

TEST(VerifyGreedyChain, EndsAtTheFirstDisagreementOrPlaceholder) {
  using Tokens = std::vector<int64_t>;
  EXPECT_EQ(tokens_of(chain({5, 6, 7}, {5, 6, 7, 8}), 3), (Tokens{5, 6, 7, 8}));
  EXPECT_EQ(tokens_of(chain({5, 6, 7}, {5, 9, 7, 8}), 3), (Tokens{5, 9}));
  EXPECT_EQ(tokens_of(chain({4, 6, 7}, {5, 6, 7, 8}), 3), (Tokens{5}));
  EXPECT_EQ(tokens_of(chain({5, -1, 7}, {5, -1, 7, 8}), 3), (Tokens{5, -1}));
  EXPECT_EQ(tokens_of(chain({}, {5}), 0), (Tokens{5}));
  EXPECT_EQ(tokens_of(chain({5, 6, 7}, {5, 6, 7, 8}), 1), (Tokens{5, 6}));
  EXPECT_EQ(tokens_of(chain({5, 6, 7}, {5, 6, 7, 8}), 0), (Tokens{5}));
}

TEST(VerifyGreedyTree, TakesTheLongestPathAndTheLowestAmongEquals) {
  //        root: 5          the target wants 5 first, then 6 after either 5, then 8 after node 4
  //     0:5     1:5
  //   3:9     2:6 4:6
  VerifyBatch batch = chain({5, 5, 6, 9, 6}, {5, 6, 6, 7, 1, 8});
  batch.parents = {-1, -1, 1, 0, 1};
  const VerifyRun run{.is_tree = true, .max_accepted = 3};
  const auto verdict = run_verify<int64_t, int64_t>(batch, run)[0];
  EXPECT_EQ(verdict.nodes, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(verdict.tokens, (std::vector<int64_t>{5, 6, 7}));
}

TEST(VerifyGreedyTree, AMaskThatHoldsMoreThanAncestorsIsReadUpToTheNodeOnly) {
  // Bits from i on, and words that a row lacks, do not count: two nodes in a chain, all else set.
  const std::vector<int64_t> indptr{0, 2}, drafts{5, 6}, targets{5, 6, 7}, mask{-1, -1};
  testing::PoisonedBuffer<int64_t> tokens(3), count(1), nodes(2);
  verify_tree_greedy({}, tokens.view({1, 3}), count.view({1}), nodes.view({1, 2}),
                     host_view(drafts.data(), {2}), host_view(targets.data(), {3}),
                     host_view(mask.data(), {2, 1}), host_view(indptr.data(), {2}));
  EXPECT_EQ(count[0], 2);
  EXPECT_EQ(tokens[2], 7);
  // Without words every node hangs on the root.
  verify_tree_greedy({}, tokens.view({1, 3}), count.view({1}), nodes.view({1, 2}),
                     host_view(drafts.data(), {2}), host_view(targets.data(), {3}),
                     host_view(mask.data(), {2, 0}), host_view(indptr.data(), {2}));
  EXPECT_EQ(count[0], 1);
  EXPECT_EQ(tokens[1], 6);
}

TEST(VerifyGreedyTree, TheLastBitOfARowThatIsTooShortCounts) {
  // One word for 65 nodes: all hang on the root but node 64, whose bit 63 says that it follows 63.
  constexpr int64_t kNodes = 65;
  std::vector<int64_t> drafts(kNodes), targets(kNodes + 1, 1000), mask(kNodes, 0);
  std::iota(drafts.begin(), drafts.end(), 100);
  mask[64] = std::numeric_limits<int64_t>::min();
  targets[0] = drafts[63];
  targets[1 + 63] = drafts[64];
  const std::vector<int64_t> indptr{0, kNodes};
  testing::PoisonedBuffer<int64_t> tokens(3), count(1), nodes(2);
  verify_tree_greedy({}, tokens.view({1, 3}), count.view({1}), nodes.view({1, 2}),
                     host_view(drafts.data(), {kNodes}), host_view(targets.data(), {kNodes + 1}),
                     host_view(mask.data(), {kNodes, 1}), host_view(indptr.data(), {2}));
  EXPECT_EQ(count[0], 2);
  EXPECT_EQ(nodes[0], 63);
  EXPECT_EQ(nodes[1], 64);
  EXPECT_EQ(tokens[2], 1000);
}

TEST(Verify, RefusesWrongStartsWhereItValidatesAndElseChangesNoOthers) {
  for (int i = 0; i < testing::small_or(10, 110); ++i) {
    const bool is_tree = i % 2 == 0, stochastic = i % 4 < 2;
    VerifyBatch batch;
    batch.vocab_size = 17;
    for (int64_t seq = testing::random_int(1, 9); seq > 0; --seq) {
      add_request(testing::rng(), batch,
                  {.num_drafts = testing::random_int(0, 6), .is_tree = is_tree});
    }
    const VerifyRun run{.is_tree = is_tree, .stochastic = stochastic, .max_accepted = 6};
    expect_wrong_starts_change_no_others(batch, run, 20);
  }
}

TEST(VerifyGreedy, StartsOutOfRangeReadNothingOutside) {
  const std::vector<int64_t> wild{-7, 100, 1}, drafts{5, 6}, targets{5, 6, 7, 8};
  testing::PoisonedBuffer<int64_t> tokens(6), count(2);
  verify_greedy({}, tokens.view({2, 3}), count.view({2}), host_view(drafts.data(), {2}),
                host_view(targets.data(), {4}), host_view(wild.data(), {3}));
  EXPECT_EQ(count[0], 2);  // as if the starts were 0, 2, 2
  EXPECT_EQ(count[1], 0);
  EXPECT_EQ(tokens[3], 8);
}

TEST(TreeKvMoves, PutsThePathBehindItsRoot) {
  const std::vector<int32_t> nodes{0, 2, 5, 3, -1, -1, -1, -1, -1}, accepted{3, 1, 0};
  const std::vector<int64_t> roots{100, 7, 9};
  testing::PoisonedBuffer<int64_t> from(9);
  testing::PoisonedBuffer<int32_t> to(9);
  std::fill_n(from.data(), 9, 7);  // the poison is -1, which follows a path
  std::fill_n(to.data(), 9, 7);
  tree_kv_moves({}, from.view({3, 3}), to.view({3, 3}), host_view(nodes.data(), {3, 3}),
                host_view(accepted.data(), {3}), host_view(roots.data(), {3}));
  EXPECT_EQ((std::vector<int64_t>{from.data(), from.data() + 9}),
            (std::vector<int64_t>{101, 103, 106, 11, -1, -1, -1, -1, -1}));
  EXPECT_EQ((std::vector<int32_t>{to.data(), to.data() + 9}),
            (std::vector<int32_t>{101, 102, 103, 8, -1, -1, -1, -1, -1}));
  EXPECT_TRUE(from.guards_intact() && to.guards_intact());

  const testing::ScopedValidation validation;
  const std::vector<int32_t> falling{2, 1, 0}, too_many{3, 4, 0}, before_all{100, -1, 9};
  expect_invalid({"root_positions[1] is -1, expected at least 0"}, [&] {
    tree_kv_moves({}, from.view({3, 3}), to.view({3, 3}), host_view(nodes.data(), {3, 3}),
                  host_view(accepted.data(), {3}), host_view(before_all.data(), {3}));
  });
  expect_invalid({"accepted_nodes[0, 1] is 1, expected at least 3"}, [&] {
    tree_kv_moves({}, from.view({1, 3}), to.view({1, 3}), host_view(falling.data(), {1, 3}),
                  host_view(accepted.data(), {1}), host_view(roots.data(), {1}));
  });
  expect_invalid({"num_accepted[1] is 4, expected 0 to max_depth = 3"}, [&] {
    tree_kv_moves({}, from.view({3, 3}), to.view({3, 3}), host_view(nodes.data(), {3, 3}),
                  host_view(too_many.data(), {3}), host_view(roots.data(), {3}));
  });
}

/// Two trees of two nodes each, and a call whose tensors a test can make wrong.
struct TreeCall {
  TreeCall() = default;
  TreeCall(const TreeCall&) = delete;
  TreeCall& operator=(const TreeCall&) = delete;

  std::vector<int64_t> tokens = std::vector<int64_t>(6), nodes = std::vector<int64_t>(4);
  std::vector<int32_t> count = std::vector<int32_t>(2), indptr{0, 2, 4}, drafts{5, 6, -1, 6};
  std::vector<int32_t> mask{1, 3, 1, 2};
  std::vector<int64_t> targets{5, 6, 7, 6, -1, 8};
  TensorView tokens_view = host_view(tokens.data(), {2, 3});
  TensorView nodes_view = host_view(nodes.data(), {2, 2});
  TensorView count_view = host_view(count.data(), {2});
  ConstTensorView drafts_view = host_view(drafts.data(), {4});
  ConstTensorView targets_view = host_view(targets.data(), {6});
  ConstTensorView mask_view = host_view(mask.data(), {4, 1});
  ConstTensorView indptr_view = host_view(indptr.data(), {3});
  ExecContext ctx;

  void operator()() const {
    verify_tree_greedy(ctx, tokens_view, count_view, nodes_view, drafts_view, targets_view,
                       mask_view, indptr_view);
  }
};

template <class Change>
void expect_refused(ErrorCode code, const char* message, const Change& change) {
  TreeCall call;
  change(call);
  testing::expect_error(code, {message}, call);
}

TEST(VerifyErrors, NameTensorAxisAndBothValues) {
  const TreeCall good;
  good();
  EXPECT_EQ(good.count, (std::vector<int32_t>{2, 1}));

  const auto expect_wrong = [](const char* message, const auto& change) {
    expect_refused(ErrorCode::kInvalidArgument, message, change);
  };
  expect_wrong("num_accepted.size(0) is 2, expected num_seqs = 3", [](TreeCall& c) {
    c.tokens_view = host_view(c.tokens.data(), {3, 2});
  });
  expect_wrong("output_tokens.size(1) is 0, expected at least 1", [](TreeCall& c) {
    c.tokens_view = host_view(c.tokens.data(), {2, 0});
  });
  expect_wrong("accepted_nodes.size(1) is 1, expected max_depth = output_tokens.size(1) - 1 = 2",
               [](TreeCall& c) {
                 c.nodes_view = host_view(c.nodes.data(), {2, 1});
               });
  expect_wrong("verify_tree_greedy: accepted_nodes is absent",
               [](TreeCall& c) { c.nodes_view = {}; });
  expect_wrong("target_tokens.size(0) is 5, expected num_drafts + num_seqs = 6",
               [](TreeCall& c) { c.targets_view = host_view(c.targets.data(), {5}); });
  expect_wrong("tree_mask.size(0) is 3, expected num_drafts = 4", [](TreeCall& c) {
    c.mask_view = host_view(c.mask.data(), {3, 1});
  });
  expect_wrong("verify_tree_greedy: tree_mask is absent", [](TreeCall& c) { c.mask_view = {}; });
  const std::vector<float> floats(4);
  expect_refused(ErrorCode::kUnsupported, "draft_tokens is f32, supported: i32, i64",
                 [&](TreeCall& c) { c.drafts_view = host_view(floats.data(), {4}); });
  expect_refused(kWithCuda ? ErrorCode::kInvalidArgument : ErrorCode::kUnsupported,
                 kWithCuda ? "output_tokens is on cpu, the context runs on cuda:0"
                           : "verify_tree_greedy: no implementation for cuda:0",
                 [](TreeCall& c) {
                   c.ctx.device = {DeviceType::kCuda, 0};
                 });
}

/// The error of the call made wrong by `change` where HEDDLE_VALIDATE is set; without it the call
/// passes.
template <class Change>
void expect_validated(std::initializer_list<const char*> parts, const Change& change) {
  TreeCall call;
  change(call);
  call();
  const testing::ScopedValidation validation;
  expect_invalid(parts, call);
}

TEST(VerifyErrors, ValidationNamesRowAndValue) {
  {
    const testing::ScopedValidation validation;
    const TreeCall good;  // target_tokens[4] follows a placeholder and may be anything
    good();
  }
  expect_validated({"node_indptr[2] is 1, expected at least node_indptr[1] = 2"},
                   [](TreeCall& c) { c.indptr[2] = 1; });
  expect_validated({"node_indptr[2] is 5, expected at most num_drafts = 4"},
                   [](TreeCall& c) { c.indptr[2] = 5; });
  expect_validated({"target_tokens[5] is -3, expected at least 0"},
                   [](TreeCall& c) { c.targets[5] = -3; });
  expect_validated({"tree_mask[1, 0] is 0x1, expected 0x3, the bits of node 1 and of its parent"},
                   [](TreeCall& c) { c.mask[1] = 1; });
  expect_validated({"tree_mask[2, 0] is 0x5, expected 0x1"}, [](TreeCall& c) { c.mask[2] = 5; });
  expect_validated({"tree_mask.size(1) is 0, too few words for node 0 in row 0"}, [](TreeCall& c) {
    c.mask_view = host_view(c.mask.data(), {4, 0});
  });
  expect_validated({"tree_mask[1] puts node 1 at depth 2, expected at most max_depth = 1"},
                   [](TreeCall& c) {
                     c.tokens_view = c.tokens_view.narrow(1, 0, 2);
                     c.nodes_view = c.nodes_view.narrow(1, 0, 1);
                   });
  const std::vector<int64_t> indptr{0, 2}, drafts{5, 6}, targets{5, 6, 7};
  std::vector<int64_t> tokens(2), count(1);
  const testing::ScopedValidation validation;
  expect_invalid({"row 0 has 2 drafts, output_tokens.size(1) is 2"}, [&] {
    verify_greedy({}, host_view(tokens.data(), {1, 2}), host_view(count.data(), {1}),
                  host_view(drafts.data(), {2}), host_view(targets.data(), {3}),
                  host_view(indptr.data(), {2}));
  });
}

}  // namespace
}  // namespace heddle
