#include "heddle/ops/verify.h"

#include <vector>

#include <gtest/gtest.h>

#include "capi/test/capi_test_body.h"

namespace heddle::testing {
namespace {

using Ints = std::vector<int32_t>;

/// Two requests: drafts 1, 2 one after the other, and draft 0. The target is certain of 1, 2, 0 and
/// of 2, 1.
struct CApiVerify : ::testing::Test {
  Ints drafts{1, 2, 0}, indptr{0, 2, 3}, targets{1, 2, 0, 2, 1}, mask{1, 3, 1};
  Ints tokens = Ints(6, 9), count = Ints(2, 9), nodes = Ints(4, 9), from = Ints(4), to = Ints(4);
  std::vector<int64_t> seed{5, 6}, step{0, 0}, roots{10, 20};
  std::vector<float> p{0, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 1, 0};
  std::vector<float> q{0, 0.5f, 0.5f, 0.5f, 0, 0.5f, 1, 0, 0};
  CTensor c_drafts{drafts.data(), {3}}, c_indptr{indptr.data(), {3}};
  CTensor c_targets{targets.data(), {5}}, c_mask{mask.data(), {3, 1}};
  CTensor c_tokens{tokens.data(), {2, 3}}, c_count{count.data(), {2}};
  CTensor c_nodes{nodes.data(), {2, 2}}, c_from{from.data(), {2, 2}}, c_to{to.data(), {2, 2}};
  CTensor c_seed{seed.data(), {2}}, c_step{step.data(), {2}}, c_roots{roots.data(), {2}};
  CTensor c_p{p.data(), {5, 3}}, c_q{q.data(), {3, 3}};
  Context context{2};

  void expect_confirmed(bool is_tree) {
    EXPECT_EQ(tokens, (Ints{1, 2, 0, 2, -1, -1}));
    EXPECT_EQ(count, (Ints{2, 0}));
    EXPECT_EQ(nodes, is_tree ? (Ints{0, 1, -1, -1}) : (Ints{9, 9, 9, 9}));
    tokens.assign(6, 9);
    count.assign(2, 9);
    nodes.assign(4, 9);
  }
};

TEST_F(CApiVerify, Chains) {
  ASSERT_EQ(heddle_verify_greedy(context, c_tokens.get(), c_count.get(), c_drafts.get(),
                                 c_targets.get(), c_indptr.get()),
            HEDDLE_OK);
  expect_confirmed(false);
  for (const DLTensor* probs :
       {static_cast<const DLTensor*>(nullptr), static_cast<const DLTensor*>(c_q.get())}) {
    ASSERT_EQ(
        heddle_verify_stochastic(context, c_tokens.get(), c_count.get(), c_drafts.get(), probs,
                                 c_p.get(), c_indptr.get(), c_seed.get(), c_step.get()),
        HEDDLE_OK);
    expect_confirmed(false);
  }
  expect_failure(
      HEDDLE_INVALID_ARGUMENT, "target_probs is NULL",
      heddle_verify_stochastic(context, c_tokens.get(), c_count.get(), c_drafts.get(), nullptr,
                               nullptr, c_indptr.get(), c_seed.get(), c_step.get()));
  expect_failure(HEDDLE_INVALID_ARGUMENT, "target_tokens.size(0) is 3, expected",
                 heddle_verify_greedy(context, c_tokens.get(), c_count.get(), c_drafts.get(),
                                      c_drafts.get(), c_indptr.get()));
}

TEST_F(CApiVerify, Trees) {
  ASSERT_EQ(
      heddle_verify_tree_greedy(context, c_tokens.get(), c_count.get(), c_nodes.get(),
                                c_drafts.get(), c_targets.get(), c_mask.get(), c_indptr.get()),
      HEDDLE_OK);
  ASSERT_EQ(heddle_tree_kv_moves(context, c_from.get(), c_to.get(), c_nodes.get(), c_count.get(),
                                 c_roots.get()),
            HEDDLE_OK);
  EXPECT_EQ(from, (Ints{11, 12, -1, -1}));
  EXPECT_EQ(to, from);
  expect_confirmed(true);
  for (const DLTensor* probs :
       {static_cast<const DLTensor*>(nullptr), static_cast<const DLTensor*>(c_q.get())}) {
    ASSERT_EQ(heddle_verify_tree_stochastic(context, c_tokens.get(), c_count.get(), c_nodes.get(),
                                            c_drafts.get(), probs, c_p.get(), c_mask.get(),
                                            c_indptr.get(), c_seed.get(), c_step.get()),
              HEDDLE_OK);
    expect_confirmed(true);
  }
  expect_failure(
      HEDDLE_INVALID_ARGUMENT, "tree_mask is NULL",
      heddle_verify_tree_greedy(context, c_tokens.get(), c_count.get(), c_nodes.get(),
                                c_drafts.get(), c_targets.get(), nullptr, c_indptr.get()));
}

}  // namespace
}  // namespace heddle::testing
