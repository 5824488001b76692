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

TEST(RowQueue, AdmitsInOrderAsManyAsTheBatchAndThePagesHold) {
  PagePool pages(5);
  RowQueue queue(pages, 3, 4);
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
  RowQueue queue(pages, 10, 1);
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

 private:
  std::vector<Admission> admissions_;
};

TEST(RowQueue, StartsMoreRowsThanAScheduleHas) {
  constexpr int kNumRows = 3 * kMaxScheduledRows;
  PagePool pages(2 * kNumRows);
  FourOfFive adapters;
  RowQueue queue(pages, kNumRows, 4, &adapters);
  for (int i = 0; i < kNumRows; ++i) queue.wait(row_of(i, 1, 2));
  queue.admit();
  EXPECT_EQ(std::ssize(queue.running()), kNumRows - (kNumRows + 4) / 5);
  for (const RequestId id : ids(queue.waiting())) EXPECT_EQ(id % 5, 0) << id;
}

/// Requests of random lengths come at random; each grows by a token a step, to its longest length.
TEST(RowQueue, EveryRowRunsToItsEndAndAllPagesComeBack) {
  constexpr int64_t kNumPages = 12, kPageSize = 4, kNumRows = 300;
  PagePool pages(kNumPages);
  RowQueue queue(pages, 3, kPageSize);
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

TEST(RowQueue, TellsAnErrorAndGivesPagesBack) {
  PagePool pages(4);
  RowQueue queue(pages, 2, 1);
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
