#include "engine/rows/step_schedule.h"

#include <algorithm>
#include <new>
#include <type_traits>
#include <utility>

namespace heddle {

void StepSchedule::clear() {
  rows.clear();
  num_logits = num_scored = num_prompt_tokens = 0;
}

void StepSchedule::add(Sequence& sequence, int64_t count) {
  const int64_t first = sequence.cache.num_cached, end = first + count;
  const int64_t prompt_tokens = sequence.request.prompt_tokens;
  RowStep& row = rows.emplace_back(RowStep{.sequence = &sequence,
                                           .first = first,
                                           .count = count,
                                           .decodes = sequence.decodes(),
                                           .logits_begin = num_logits});
  if (end == sequence.num_tokens()) row.num_logits = 1;
  if (sequence.is_scoring()) {
    row.num_scored = std::max<int64_t>(std::min(end, prompt_tokens - 1) - first, 0);
  }
  num_logits += row.num_logits;
  num_scored += row.num_scored;
  num_prompt_tokens += std::max<int64_t>(std::min(end, prompt_tokens) - first, 0);
}

void StepSchedule::forget(const Sequence& sequence) noexcept {
  for (RowStep& row : rows) {
    if (row.sequence == &sequence) row.sequence = nullptr;
  }
}

void tell_tokens(Sequence& sequence, Event& event) noexcept {
  const Completion& completion = sequence.answer.completion;
  const size_t begin = std::exchange(sequence.answer.num_told, completion.token_ids.size());
  const auto rest = [begin](const auto& all, size_t each) {
    return std::remove_cvref_t<decltype(all)>(
        all.begin() + static_cast<ptrdiff_t>(std::min(begin * each, all.size())), all.end());
  };
  const auto k = static_cast<size_t>(sequence.request.top_logprobs);
  try {
    event.tokens = {.ids = rest(completion.token_ids, 1),
                    .logprobs = rest(completion.logprobs, 1),
                    .top_ids = rest(completion.top_token_ids, k),
                    .top_logprobs = rest(completion.top_logprobs, k)};
  } catch (const std::bad_alloc&) {
    event.tokens = {};
  }
  event.token_texts = completion.token_texts;
}

}  // namespace heddle
