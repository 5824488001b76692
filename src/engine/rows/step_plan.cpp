#include "engine/rows/step_plan.h"

#include <algorithm>
#include <new>
#include <type_traits>
#include <utility>

namespace heddle {

void tell_tokens(Sequence& row, Event& event) noexcept {
  const Completion& answer = row.completion;
  const size_t begin = std::exchange(row.num_told, answer.token_ids.size());
  const auto rest = [begin](const auto& all, size_t each) {
    return std::remove_cvref_t<decltype(all)>(
        all.begin() + static_cast<ptrdiff_t>(std::min(begin * each, all.size())), all.end());
  };
  const auto k = static_cast<size_t>(row.top_logprobs);
  try {
    event.tokens = {.ids = rest(answer.token_ids, 1),
                    .logprobs = rest(answer.logprobs, 1),
                    .top_ids = rest(answer.top_token_ids, k),
                    .top_logprobs = rest(answer.top_logprobs, k)};
  } catch (const std::bad_alloc&) {
    event.tokens = {};
  }
  event.token_texts = answer.token_texts;
}

}  // namespace heddle
