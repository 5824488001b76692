#include "engine/runner/batch_builder.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/rows/row_queue.h"

namespace heddle {
namespace {

constexpr int64_t kPageSize = 4;
/// Bundles of two.
constexpr auto kTwo = [](int64_t /*kv_len*/, int64_t num_queries) {
  return std::min<int64_t>(num_queries, 2);
};

/// A row with pages for `room` tokens, of which all but the last are cached where it decodes.
Sequences row_of(PagePool& pages, std::vector<int32_t> tokens, bool decodes, int64_t room) {
  Sequences one = RowQueue::make_row(0);
  Sequence& row = one.front();
  row.tokens = std::move(tokens);
  row.request.prompt_tokens = std::ssize(row.tokens);
  row.request.max_tokens = 100;
  row.cache.prefill_length = decodes ? 0 : std::ssize(row.tokens);
  row.cache.num_cached = decodes ? std::ssize(row.tokens) - 1 : 0;
  row.cache.pages = std::move(*pages.reserve(pages_for(room, kPageSize)));
  row.cache.pages.grow_to(pages_for(row.cache.num_cached, kPageSize));
  return one;
}

class BatchBuilder : public ::testing::Test {
 protected:
  BatchBuilder() {
    drafting.front().drafts = std::make_unique<RowDrafts>();
    drafting.front().drafts->tokens = {31, 32, 33};
    drafting.front().adapters.slot = 2;
    drafting.front().adapters.active_from = 6;
    step.add(plain.front(), 1);
    step.add(drafting.front(), 1, 3);
    step.add(prompt.front(), 2);
    batch.reserve({.num_tokens = 16, .num_seqs = 16, .num_pages = 64, .num_logit_rows = 16});
  }

  PagePool pages{16};
  Sequences plain = row_of(pages, {1, 2, 3}, true, 4);
  Sequences drafting = row_of(pages, {11, 12, 13, 14, 15, 16}, true, 12);
  Sequences prompt = row_of(pages, {21, 22}, false, 4);
  StepSchedule step;
  model::StepBatch batch;
};

TEST_F(BatchBuilder, DraftsFollowTheirRowsLastToken) {
  fill_batch(batch, step, kPageSize, false, kTwo);
  EXPECT_EQ(batch.token_ids, (std::vector<int32_t>{3, 16, 31, 32, 33, 21, 22}));
  EXPECT_EQ(batch.positions, (std::vector<int32_t>{2, 5, 6, 7, 8, 0, 1}));
  EXPECT_EQ(batch.slot_ids, (std::vector<int32_t>{-1, -1, 2, 2, 2, -1, -1}));
  EXPECT_EQ(batch.q_indptr, (std::vector<int32_t>{0, 1, 5, 7}));
  EXPECT_EQ(batch.page_indptr, (std::vector<int32_t>{0, 1, 4, 5}));
  EXPECT_EQ(batch.last_page_len, (std::vector<int32_t>{3, 1, 2}));
  EXPECT_EQ(batch.logit_tokens, (std::vector<int32_t>{0, 1, 2, 3, 4, 6}));
  EXPECT_EQ(batch.logit_seqs, (std::vector<int32_t>{0, 1, 1, 1, 1, 2}));
  EXPECT_EQ(batch.num_decode, 2);
  EXPECT_TRUE(batch.bundle_indptr.empty());
}

/// On a GPU each of them is a sequence of one token, which takes the path of drawn tokens.
TEST_F(BatchBuilder, OnAGpuEachDraftIsASequence) {
  fill_batch(batch, step, kPageSize, true, kTwo);
  EXPECT_EQ(batch.token_ids, (std::vector<int32_t>{3, 16, 31, 32, 33, 21, 22}));
  EXPECT_EQ(batch.sources, (std::vector<int32_t>(7, -1)));
  EXPECT_EQ(batch.positions, (std::vector<int32_t>{2, 5, 6, 7, 8, 0, 1}));
  EXPECT_EQ(batch.q_indptr, (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 7}));
  EXPECT_EQ(batch.page_indptr, (std::vector<int32_t>{0, 1, 3, 5, 7, 10, 11}));
  EXPECT_EQ(batch.last_page_len, (std::vector<int32_t>{3, 2, 3, 4, 1, 2}));
  const auto own = drafting.front().cache.pages.ids();
  ASSERT_EQ(own.size(), 3u);
  for (size_t i = 0; i < 4; ++i) {
    for (size_t page = 0; page < (i < 3 ? 2u : 3u); ++page) {
      EXPECT_EQ(batch.pages[1 + 2 * i + page], static_cast<int32_t>(own[page])) << i;
    }
  }
  EXPECT_EQ(batch.seq_slots, (std::vector<int32_t>{-1, 2, 2, 2, 2, -1}));
  EXPECT_EQ(batch.logit_tokens, (std::vector<int32_t>{0, 1, 2, 3, 4, 6}));
  EXPECT_EQ(batch.logit_seqs, (std::vector<int32_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(batch.num_decode, 5);
}

/// They read the row's keys together, as far as bundle_of allows.
TEST_F(BatchBuilder, DraftsAreBundlesOfTheirRow) {
  std::vector<std::pair<int64_t, int64_t>> asked;
  fill_batch(batch, step, kPageSize, true, [&](int64_t kv_len, int64_t num_queries) {
    asked.emplace_back(kv_len, num_queries);
    return std::min<int64_t>(num_queries, 3);
  });
  EXPECT_EQ(batch.bundle_indptr, (std::vector<int32_t>{0, 1, 4, 5}));
  EXPECT_EQ(batch.max_bundle, 4);
  EXPECT_EQ(asked, (std::vector<std::pair<int64_t, int64_t>>{{3, 1}, {6, 4}, {9, 1}}));
  step.rows.pop_back();  // a graph has no prompts
  fill_batch(batch, step, kPageSize, true, kTwo);
  EXPECT_EQ(batch.bundle_indptr, (std::vector<int32_t>{0, 1, 3, 5}));
  pad_batch(batch, 16, 15);
  ASSERT_EQ(batch.num_seqs(), 8);
  EXPECT_EQ(batch.bundle_indptr, (std::vector<int32_t>{0, 1, 3, 5, 6, 7, 8, 8, 8}));
  EXPECT_EQ(batch.max_bundle, 2);
  drafting.front().drafts->tokens.clear();
  step.rows[1].num_drafts = 0;
  step.rows[1].count = step.rows[1].num_logits = 1;
  fill_batch(batch, step, kPageSize, true, kTwo);
  EXPECT_TRUE(batch.bundle_indptr.empty());
  EXPECT_EQ(batch.max_bundle, 1);
}

TEST_F(BatchBuilder, DraftsCountUpToTheFirstThatDiffers) {
  const RowStep& row = step.rows[1];
  const auto num_taken = [&](std::vector<int32_t> drawn) { return row.num_taken(drawn); };
  EXPECT_EQ(num_taken({31, 32, 33, 34}), 4);
  EXPECT_EQ(num_taken({31, 32, 9, 34}), 3);
  EXPECT_EQ(num_taken({31, 9, 33, 34}), 2);
  EXPECT_EQ(num_taken({9, 32, 33, 34}), 1);
  EXPECT_EQ(step.rows[0].num_taken(std::vector<int32_t>{9}), 1);
}

}  // namespace
}  // namespace heddle
