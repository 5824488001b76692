#include "engine/rows/scheduler.h"

#include <vector>

#include <gtest/gtest.h>

namespace heddle {
namespace {

using Tokens = std::vector<int64_t>;

Tokens plan(const std::vector<RowState>& rows, int64_t prefill_chunk) {
  Tokens num_tokens(rows.size(), -1);
  plan_step(rows, prefill_chunk, num_tokens);
  return num_tokens;
}

TEST(PlanStep, RowsThatDecodeGetOneTokenEach) {
  EXPECT_EQ(plan({{10, 9}, {3, 2}}, 1), (Tokens{1, 1}));
}

TEST(PlanStep, PromptsShareTheChunkInOrder) {
  EXPECT_EQ(plan({{100, 0}, {50, 49}, {100, 0}, {100, 0}}, 150), (Tokens{100, 1, 50, 0}));
}

TEST(PlanStep, ALongPromptIsCut) {
  EXPECT_EQ(plan({{100, 0}}, 64), (Tokens{64}));
  EXPECT_EQ(plan({{100, 64}}, 64), (Tokens{36}));
}

TEST(PagesForRow, CountsAllTokensButTheLastWhichIsNeverRun) {
  EXPECT_EQ(pages_for_row(17, 16), 1);
  EXPECT_EQ(pages_for_row(18, 16), 2);
  EXPECT_EQ(pages_for_row(2, 1), 1);
}

}  // namespace
}  // namespace heddle
