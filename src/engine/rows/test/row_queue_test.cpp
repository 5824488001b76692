#include "engine/rows/row_queue.h"

#include <iterator>
#include <vector>

#include <gtest/gtest.h>

#include "random.h"

namespace heddle {
namespace {

Sequences row_of(RequestId id, int64_t prompt_tokens, int64_t max_tokens) {
  Sequences one = RowQueue::make_row(id);
  one.front().request.prompt_tokens = prompt_tokens;
  one.front().request.max_tokens = max_tokens;
  one.front().tokens.resize(static_cast<size_t>(prompt_tokens));
  return one;
}

std::vector<RequestId> ids(const Sequences& sequences) {
  std::vector<RequestId> ids;
  for (const Sequence& sequence : sequences) ids.push_back(sequence.id);
  return ids;
}
using Ids = std::vector<RequestId>;

/// Tenant by tenant.
std::vector<RequestId> ids(const WaitingRows& waiting) {
  std::vector<RequestId> ids;
  waiting.for_each([&ids](const Sequence& sequence) { ids.push_back(sequence.id); });
  return ids;
}

TEST(RowQueue, AdmitsInOrderAsManyAsTheBatchAndThePagesHold) {
  PagePool pages(5);
  RowQueue queue(pages, {.max_batch = 3, .page_size = 4});
  queue.wait(row_of(0, 4, 9));   // 8 tokens are stored: 2 pages
  queue.wait(row_of(1, 4, 13));  // 3 pages
  queue.wait(row_of(2, 1, 2));   // 1 page
  queue.wait(row_of(3, 1, 2));
  queue.admit();
  EXPECT_EQ(ids(queue.running()), (Ids{0, 1}));
  EXPECT_EQ(pages.num_free(), 0);
  queue.end(*queue.find(1), FinishReason::kStop);
  EXPECT_EQ(pages.num_free(), 3);
  queue.admit();
  EXPECT_EQ(ids(queue.running()), (Ids{0, 2, 3}));
  queue.wait(row_of(4, 1, 2));
  queue.admit();
  EXPECT_EQ(ids(queue.waiting()), Ids{4}) << "the batch is full";
  EXPECT_EQ(ids(queue.ended()), Ids{1});
}

TEST(RowQueue, NoRequestOvertakesOneThatWaitsForManyPages) {
  PagePool pages(4);
  RowQueue queue(pages, {.max_batch = 10, .page_size = 1});
  queue.wait(row_of(0, 1, 3));  // 2 pages
  queue.wait(row_of(1, 1, 5));  // all pages
  queue.wait(row_of(2, 1, 2));  // 1 page, which is free
  queue.admit();
  EXPECT_EQ(ids(queue.running()), Ids{0});
  EXPECT_EQ(ids(queue.waiting()), (Ids{1, 2}));
  queue.end(*queue.find(0), FinishReason::kStop);
  queue.admit();
  EXPECT_EQ(ids(queue.running()), Ids{1});
  queue.end(*queue.find(1), FinishReason::kStop);
  queue.admit();
  EXPECT_EQ(ids(queue.running()), Ids{2});
}

/// Lets every fifth request wait.
class FourOfFive : public RowQueue::Adapters {
 public:
  std::span<const Admission> schedule(std::span<const Sequence* const> waiting) noexcept override {
    admissions_.clear();
    for (const Sequence* each : waiting) {
      admissions_.push_back(each->id % 5 == 0 ? Admission::kWaits : Admission::kStarts);
    }
    return admissions_;
  }
  void take(Sequence& /*sequence*/) override {}
  [[nodiscard]] Digest content(const Sequence& /*sequence*/) const noexcept override { return {}; }

 private:
  std::vector<Admission> admissions_;
};

TEST(RowQueue, StartsMoreRowsThanAScheduleHas) {
  constexpr int kNumRows = 3 * kMaxScheduledRows;
  PagePool pages(2 * kNumRows);
  FourOfFive adapters;
  RowQueue queue(pages, {.max_batch = kNumRows, .page_size = 4}, &adapters);
  for (int i = 0; i < kNumRows; ++i) queue.wait(row_of(i, 1, 2));
  queue.admit();
  EXPECT_EQ(std::ssize(queue.running()), kNumRows - (kNumRows + 4) / 5);
  for (const RequestId id : ids(queue.waiting())) EXPECT_EQ(id % 5, 0) << id;
}

/// Requests of random lengths come at random; each grows by a token a step, to its longest length.
TEST(RowQueue, EveryRowRunsToItsEndAndAllPagesComeBack) {
  constexpr int64_t kNumPages = 12, kPageSize = 4, kNumRows = 300;
  PagePool pages(kNumPages);
  RowQueue queue(pages, {.max_batch = 3, .page_size = kPageSize});
  RequestId next = 0, next_to_start = 0;
  int64_t num_ended = 0, num_idle_steps = 0;
  while (num_ended < kNumRows) {
    for (int64_t i = testing::random_int(0, 3); i > 0 && next < kNumRows; --i) {
      const int64_t prompt = testing::random_int(1, 20);
      queue.wait(row_of(next++, prompt, prompt + testing::random_int(1, 28)));
    }
    queue.admit();
    for (const Sequence& row : queue.running()) {
      if (row.id >= next_to_start) {
        EXPECT_EQ(row.id, next_to_start++) << "a row was overtaken";
      }
    }
    num_idle_steps = queue.running().empty() && next == kNumRows ? num_idle_steps + 1 : 0;
    ASSERT_LT(num_idle_steps, 2) << "rows wait, none runs";
    Ids at_end;
    for (Sequence& row : queue.running()) {
      const auto num_stored = std::ssize(row.tokens);
      row.cache.pages.grow_to((num_stored + kPageSize - 1) /
                              kPageSize);  // throws where there are none
      row.tokens.push_back(0);
      if (std::ssize(row.tokens) == row.request.max_tokens) at_end.push_back(row.id);
    }
    for (const RequestId id : at_end) queue.end(*queue.find(id), FinishReason::kLength);
    num_ended += std::ssize(queue.ended());
    queue.ended().clear();
  }
  EXPECT_EQ(pages.num_free(), kNumPages);
}

constexpr RowQueue::Rules kNow{.max_batch = 8, .page_size = 4, .reserves_longest = false};

/// As if a step had drawn a token of each that runs.
void draw(RowQueue& queue) {
  for (Sequence& row : queue.running()) {
    if (row.is_paused) continue;
    row.cache.pages.grow_to((std::ssize(row.tokens) + 3) / 4);
    row.cache.num_cached = std::ssize(row.tokens);
    row.tokens.push_back(0);
  }
}

TEST(RowQueue, StartsWithRoomForThePromptAndAFewPages) {
  PagePool pages(10);
  RowQueue queue(pages, kNow);
  for (RequestId id = 0; id < 4; ++id) queue.wait(row_of(id, 4, 33));  // 8 pages at its longest
  queue.admit();
  EXPECT_EQ(ids(queue.running()), (Ids{0, 1})) << "a third would leave one page for two that grow";
  EXPECT_EQ(pages.num_free(), 4);
  queue.end(*queue.find(1), FinishReason::kStop);
  queue.wait(row_of(4, 1, 2));
  queue.admit();
  EXPECT_EQ(ids(queue.running()), (Ids{0, 2})) << "none overtakes the third";
}

TEST(RowQueue, ParksTheYoungestWhenPagesRunOutAndGoesOnWithIt) {
  PagePool pages(10);
  RowQueue queue(pages, kNow);
  for (RequestId id = 0; id < 3; ++id) queue.wait(row_of(id, 4, 33));
  queue.admit();
  ASSERT_EQ(ids(queue.running()), (Ids{0, 1}));
  int64_t num_steps = 0;
  while (queue.running().size() > 1) {
    ASSERT_LT(++num_steps, 40);
    queue.prepare_step();
    draw(queue);
  }
  EXPECT_EQ(ids(queue.running()), Ids{0});
  EXPECT_EQ(ids(queue.waiting()), (Ids{1, 2})) << "before the one that came later";
  EXPECT_EQ(queue.num_parked(), 1);
  EXPECT_EQ(queue.counts().parkings, 1);
  const Sequence& parked = *queue.find(1);
  EXPECT_GT(std::ssize(parked.tokens), 16) << "what was drawn stays";
  EXPECT_TRUE(parked.cache.pages.is_empty());
  EXPECT_EQ(parked.cache.num_cached, 0);
  queue.admit();
  EXPECT_EQ(ids(queue.running()), Ids{0}) << "its tokens and a few pages do not fit";
  queue.end(*queue.find(0), FinishReason::kStop);
  queue.admit();
  EXPECT_EQ(ids(queue.running()), Ids{1});
  EXPECT_EQ(queue.num_parked(), 0);
  EXPECT_EQ(queue.find(1)->cache.prefill_length, std::ssize(queue.find(1)->tokens));
}

/// On a device of two paths it decodes what it has drawn once more.
TEST(RowQueue, AParkedRowPrefillsItsPromptAloneWhereDrawnTokensHaveOtherBits) {
  PagePool pages(10);
  RowQueue queue(
      pages, {.max_batch = 8, .page_size = 4, .reserves_longest = false, .has_two_paths = true});
  for (RequestId id = 0; id < 2; ++id) queue.wait(row_of(id, 4, 33));
  queue.admit();
  while (queue.running().size() > 1) {
    queue.prepare_step();
    draw(queue);
  }
  queue.end(*queue.find(0), FinishReason::kStop);
  queue.admit();
  EXPECT_EQ(queue.find(1)->cache.prefill_length, 4);
}

TEST(RowQueue, ParksAPausedRowFirstAndStartsItWhenItGoesOn) {
  PagePool pages(10);
  RowQueue queue(pages, kNow);
  for (RequestId id = 0; id < 2; ++id) queue.wait(row_of(id, 4, 33));
  queue.admit();
  queue.set_paused(*queue.find(0), true);
  while (queue.running().size() > 1) {
    queue.prepare_step();
    draw(queue);
  }
  EXPECT_EQ(ids(queue.running()), Ids{1});
  queue.end(*queue.find(1), FinishReason::kStop);
  queue.admit();
  EXPECT_TRUE(queue.running().empty());
  queue.set_paused(*queue.find(0), false);
  queue.admit();
  EXPECT_EQ(ids(queue.running()), Ids{0});
}

/// Of a burst and one that comes later.
TEST(RowQueue, TenantsTakeTurnsAndTheLastThatStartedIsParked) {
  PagePool pages(10);
  RowQueue::Rules rules = kNow;
  rules.has_tenants = true;
  RowQueue queue(pages, rules);
  const auto wait = [&](RequestId id, const std::string& tenant) {
    Sequences one = row_of(id, 4, 33);
    one.front().request.tenant = tenant;
    one.front().tenant = queue.tenant(one.front().request);
    queue.wait(std::move(one));
  };
  for (RequestId id = 0; id < 5; ++id) wait(id, "burst");
  queue.admit();
  ASSERT_EQ(ids(queue.running()), (Ids{0, 1})) << "alone it has all places";
  wait(5, "late");
  const auto end_and_admit = [&queue](RequestId id) {
    queue.end(*queue.find(id), FinishReason::kStop);
    queue.admit();
    return ids(queue.running());
  };
  ASSERT_EQ(end_and_admit(0), (Ids{1, 2})) << "both are charged as much, 2 is older";
  ASSERT_EQ(end_and_admit(1), (Ids{2, 5})) << "before 3 and 4";
  ASSERT_EQ(end_and_admit(2), (Ids{5, 3})) << "in the order in which they started";
  for (int steps = 0; queue.running().size() > 1; ++steps) {
    ASSERT_LT(steps, 40);
    queue.prepare_step();
    draw(queue);
  }
  EXPECT_EQ(ids(queue.running()), Ids{5}) << "3 started last";
  EXPECT_EQ(ids(queue.waiting()), (Ids{3, 4}));
  EXPECT_EQ(end_and_admit(5).front(), 3);
}

TEST(RowQueue, TheLowestPriorityStartsFirstAndTheLargestIsParkedFirst) {
  PagePool pages(10);
  RowQueue queue(pages, kNow);
  const auto wait = [&](RequestId id, int64_t priority) {
    Sequences one = row_of(id, 4, 33);
    one.front().request.priority = priority;
    one.front().tenant = queue.tenant(one.front().request);
    queue.wait(std::move(one));
  };
  wait(0, 5);
  queue.admit();
  wait(1, 5);
  wait(2, 0);
  wait(3, -1);
  queue.admit();
  EXPECT_EQ(ids(queue.running()), (Ids{3, 0})) << "which is stopped by none while there are pages";
  EXPECT_EQ(ids(queue.waiting()), (Ids{2, 1}));
  for (int steps = 0; queue.running().size() > 1; ++steps) {
    ASSERT_LT(steps, 40);
    queue.prepare_step();
    draw(queue);
  }
  EXPECT_EQ(ids(queue.running()), Ids{3}) << "0 started first, but has a larger priority";
  EXPECT_EQ(ids(queue.waiting()), (Ids{2, 0, 1}));
  queue.end(*queue.find(3), FinishReason::kStop);
  queue.admit();
  EXPECT_EQ(ids(queue.running()).front(), 2);
}

TEST(RowQueue, TellsAnErrorAndGivesPagesBack) {
  PagePool pages(4);
  RowQueue queue(pages, {.max_batch = 2, .page_size = 1});
  queue.wait(row_of(0, 1, 3));
  queue.wait(row_of(1, 1, 3));
  queue.admit();
  queue.fail(*queue.find(0), {RequestError::kUnsupported, "a reason"});
  queue.refuse(RowQueue::make_row(2), {RequestError::kUnknownAdapter, "another"});
  EXPECT_EQ(pages.num_free(), 2);
  EXPECT_EQ(queue.find(0), nullptr);
  ASSERT_EQ(ids(queue.ended()), (Ids{0, 2}));
  EXPECT_EQ(queue.ended().front().answer.completion.error, "a reason");
  EXPECT_EQ(queue.ended().back().answer.completion.error, "another");
  EXPECT_EQ(queue.ended().front().answer.completion.error_code, RequestError::kUnsupported);
  EXPECT_EQ(queue.ended().back().answer.completion.error_code, RequestError::kUnknownAdapter);
  for (const Sequence& row : queue.ended()) {
    EXPECT_EQ(row.answer.completion.finish_reason, FinishReason::kError);
  }
}

}  // namespace
}  // namespace heddle
