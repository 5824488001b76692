#include "engine/row_queue.h"

#include <algorithm>
#include <new>

#include "engine/scheduler.h"

namespace heddle {
namespace {

/// Bytes of an error that every row has room for.
constexpr size_t kErrorBytes = 80;

void set_error(Completion& completion, std::string_view error) noexcept {
  try {
    completion.error = error;
  } catch (const std::bad_alloc&) {
    completion.error = error.substr(0, kErrorBytes);
  }
}

}  // namespace

RowQueue::Rows RowQueue::make_row(RequestId id) {
  Rows row(1);
  row.front().id = id;
  row.front().completion.error.reserve(kErrorBytes);
  return row;
}

void RowQueue::refuse(Rows&& row, std::string_view error) noexcept {
  Completion& completion = row.front().completion;
  completion.finish_reason = FinishReason::kError;
  set_error(completion, error);
  ended_.splice(ended_.end(), row);
}

void RowQueue::end(Sequence& row, FinishReason reason) noexcept {
  row.completion.finish_reason = reason;
  row.pages = {};
  row.tokens = {};
  row.adapter = {};
  row.list.clear();
  row.adjustment = nullptr;
  for (Rows* rows : {&running_, &waiting_}) {
    const auto place = std::ranges::find(*rows, &row, [](const Sequence& s) { return &s; });
    if (place != rows->end()) return ended_.splice(ended_.end(), *rows, place);
  }
}

void RowQueue::fail(Sequence& row, std::string_view error) noexcept {
  set_error(row.completion, error);
  end(row, FinishReason::kError);
}

/// Takes what the row needs until its end; returns whether its pages are there.
bool RowQueue::start(Sequence& row) {
  std::optional<RowPages> pages = pages_.reserve(pages_for_row(row.max_tokens, page_size_));
  if (!pages) return false;
  const auto longest_answer = static_cast<size_t>(row.max_tokens - row.prompt_tokens);
  row.tokens.reserve(static_cast<size_t>(row.max_tokens));
  row.completion.token_ids.reserve(longest_answer);
  row.completion.logprobs.reserve(longest_answer);
  if (row.adjustment != nullptr) row.adjustment->reserve(row.max_tokens - row.prompt_tokens);
  row.pages = std::move(*pages);
  return true;
}

void RowQueue::admit() noexcept {
  while (!waiting_.empty() && std::ssize(running_) < max_batch_) {
    Sequence& row = waiting_.front();
    try {
      if (!start(row)) return;
    } catch (const std::bad_alloc&) {
      fail(row, "out of memory: the row could not be started");
      continue;
    }
    running_.splice(running_.end(), waiting_, waiting_.begin());
  }
}

Sequence* RowQueue::find(RequestId id) {
  for (Rows* rows : {&waiting_, &running_}) {
    const auto row = std::ranges::find(*rows, id, &Sequence::id);
    if (row != rows->end()) return &*row;
  }
  return nullptr;
}

}  // namespace heddle
