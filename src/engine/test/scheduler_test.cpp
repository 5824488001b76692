#include "engine/scheduler.h"

#include <gtest/gtest.h>

namespace heddle {
namespace {

using Tokens = std::vector<int64_t>;

TEST(PlanStep, RowsThatDecodeGetOneTokenEach) {
  const RowState rows[] = {{10, 9}, {3, 2}};
  EXPECT_EQ(plan_step(rows, 1), (Tokens{1, 1}));
}

TEST(PlanStep, PromptsShareTheChunkInOrder) {
  const RowState rows[] = {{100, 0}, {50, 49}, {100, 0}, {100, 0}};
  EXPECT_EQ(plan_step(rows, 150), (Tokens{100, 1, 50, 0}));
}

TEST(PlanStep, ALongPromptIsCut) {
  const RowState first[] = {{100, 0}};
  EXPECT_EQ(plan_step(first, 64), (Tokens{64}));
  const RowState second[] = {{100, 64}};
  EXPECT_EQ(plan_step(second, 64), (Tokens{36}));
}

TEST(PlanStep, AChunkOfNothingStillMovesOn) {
  const RowState rows[] = {{5, 0}};
  EXPECT_EQ(plan_step(rows, 0), (Tokens{1}));
}

TEST(Admit, CountsRowsThenPages) {
  EXPECT_EQ(admit(33, 16, 1, 2, 3), Admit::kYes);
  EXPECT_EQ(admit(33, 16, 2, 2, 3), Admit::kNoRoom);
  EXPECT_EQ(admit(49, 16, 1, 2, 3), Admit::kNoPages);
}

}  // namespace
}  // namespace heddle
