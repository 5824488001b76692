#include "engine/rows/row_queue.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <limits>
#include <new>

#include "engine/rows/scheduler.h"

namespace heddle {
namespace {

/// Bytes of an error that every row has room for.
constexpr size_t kErrorBytes = 80;

void set_error(Completion& completion, const RowFailure& failure) noexcept {
  completion.error_code = failure.code;
  try {
    completion.error = failure.sentence;
  } catch (const std::bad_alloc&) {
    completion.error = failure.sentence.substr(0, kErrorBytes);
  }
}

/// Room for the log-probabilities that the row is told.
void reserve_logprobs(Sequence& row, size_t longest_answer) {
  Completion& to = row.completion;
  const auto k = static_cast<size_t>(row.top_logprobs);
  to.top_token_ids.reserve(longest_answer * k);
  to.top_logprobs.reserve(longest_answer * k);
  if (!row.scores_prompt) return;
  const auto prompt = static_cast<size_t>(row.prompt_tokens);
  to.prompt_logprobs.assign(prompt, std::numeric_limits<float>::quiet_NaN());
  to.prompt_top_token_ids.assign(prompt * k, -1);
  to.prompt_top_logprobs.assign(prompt * k, std::numeric_limits<float>::quiet_NaN());
}

}  // namespace

RowQueue::Rows RowQueue::make_row(RequestId id) {
  Rows row(1);
  row.front().id = id;
  row.front().completion.error.reserve(kErrorBytes);
  return row;
}

void RowQueue::refuse(Rows&& row, const RowFailure& failure) noexcept {
  Completion& completion = row.front().completion;
  completion.finish_reason = FinishReason::kError;
  set_error(completion, failure);
  row.front().adapters = {};  // which it may have found before
  ended_.splice(ended_.end(), row);
}

void RowQueue::end(Sequence& row, FinishReason reason) noexcept {
  row.completion.finish_reason = reason;
  row.pages.shrink_to(num_awaited(row) / page_size_);
  if (num_awaited(row) == 0) row.pages = {};
  row.tokens = {};
  row.weights = {};
  row.adapters = {};
  row.adjustment = nullptr;
  for (Rows* rows : {&running_, &waiting_}) {
    const auto place = std::ranges::find(*rows, &row, [](const Sequence& s) { return &s; });
    if (place != rows->end()) return ended_.splice(ended_.end(), *rows, place);
  }
}

void RowQueue::fail(Sequence& row, const RowFailure& failure) noexcept {
  set_error(row.completion, failure);
  end(row, FinishReason::kError);
}

void RowQueue::fail_all(const RowFailure& failure) noexcept {
  for (Rows* rows : {&running_, &waiting_}) {
    while (!rows->empty()) fail(rows->front(), failure);
  }
}

/// Takes what the row needs until its end; returns whether it is there.
bool RowQueue::start(Sequence& row) {
  const int64_t num_pages = pages_for_row(row.max_tokens, page_size_);
  const Sequence* const leader = find_leader(row);
  if (leader != nullptr && leader->num_cached < row.num_shared) return false;
  std::optional<RowPages> pages =
      leader == nullptr
          ? pages_.reserve(num_pages)
          : pages_.reserve_behind(leader->pages, row.num_shared / page_size_, num_pages);
  if (!pages) return false;
  if (adapters_ != nullptr) adapters_->take(row);
  const auto longest_answer = static_cast<size_t>(row.max_tokens - row.prompt_tokens);
  row.tokens.reserve(static_cast<size_t>(row.max_tokens));
  row.completion.token_ids.reserve(longest_answer);
  row.completion.logprobs.reserve(longest_answer);
  reserve_logprobs(row, longest_answer);
  if (row.adjustment != nullptr) row.adjustment->reserve(row.max_tokens - row.prompt_tokens);
  row.pages = std::move(*pages);
  if (leader != nullptr) row.num_cached = row.num_shared;
  row.leader = -1;
  return true;
}

/// Of the rows that wait longest.
std::span<const RowPlan> RowQueue::plan() noexcept {
  planned_.clear();
  for (const Sequence& row : waiting_) {
    if (planned_.size() == kMostPlannedRows) break;
    planned_.push_back(&row);
  }
  return adapters_->plan(planned_);
}

void RowQueue::admit() noexcept {
  while (start_planned()) {  // the next ones, where a plan has come to its end
  }
  free_kept();
}

/// Starts rows of one plan. Whether it has come to its end, and some of them no longer wait.
bool RowQueue::start_planned() noexcept {
  std::span<const RowPlan> plans;
  if (adapters_ != nullptr && !waiting_.empty()) plans = plan();
  bool any = false;
  auto next = waiting_.begin();
  for (size_t i = 0; next != waiting_.end() && std::ssize(running_) < max_batch_;) {
    if (adapters_ != nullptr && i == plans.size()) return any;
    if (adapters_ != nullptr && plans[i] == RowPlan::kWaits) {
      ++i, ++next;  // others may start before it
      continue;
    }
    Sequence& row = *next;
    try {
      if (!start(row)) {
        if (!running_.empty() || kept_.empty()) return false;
        kept_.clear();  // nobody else gives pages back: the row computes what it would have shared
        continue;
      }
      const std::chrono::duration<double> waited =
          std::chrono::steady_clock::now() - row.submitted_at;
      row.completion.wait_seconds = waited.count();
      running_.splice(running_.end(), waiting_, next++);
    } catch (const std::bad_alloc&) {
      ++next;
      fail(row, {RequestError::kOutOfMemory, "out of memory: the row could not be started"});
    } catch (const std::exception& failure) {
      ++next;
      fail(row, failure_of(failure));
    }
    any = true;
    ++i;
  }
  return false;
}

/// Whose first pages the row takes over; nullptr: nobody's, also where that row has failed.
const Sequence* RowQueue::find_leader(const Sequence& row) const {
  if (row.leader < 0) return nullptr;
  for (const Rows* rows : {&running_, &ended_, &kept_}) {
    const auto place = std::ranges::find(*rows, row.leader, &Sequence::id);
    if (place == rows->end()) continue;
    const bool has_all = !place->pages.is_empty() && place->num_cached >= row.num_shared;
    return rows == &running_ || has_all ? &*place : nullptr;
  }
  return nullptr;
}

/// Positions of a row that it has computed and others wait to take over.
int64_t RowQueue::num_awaited(const Sequence& row) const {
  int64_t most = 0;
  for (const Sequence& other : waiting_) {
    const bool waits = other.leader == row.id && row.num_cached >= other.num_shared;
    if (waits) most = std::max(most, other.num_shared);
  }
  return most;
}

void RowQueue::forget_ended() noexcept {
  kept_.splice(kept_.end(), ended_);
  free_kept();
}

void RowQueue::free_kept() noexcept {
  std::erase_if(kept_, [this](const Sequence& row) { return num_awaited(row) == 0; });
}

Sequence* RowQueue::find(RequestId id) {
  for (Rows* rows : {&waiting_, &running_}) {
    const auto row = std::ranges::find(*rows, id, &Sequence::id);
    if (row != rows->end()) return &*row;
  }
  return nullptr;
}

}  // namespace heddle
