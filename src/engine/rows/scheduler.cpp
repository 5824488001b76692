#include "engine/rows/scheduler.h"

#include <algorithm>

namespace heddle {
namespace {

/// Starts the prefill again where the keys and values of a shorter sequence no longer hold.
void restart_above(int64_t bound, Sequence& sequence) {
  const auto length = std::ssize(sequence.tokens);
  if (bound == 0 || sequence.cache.prefill_length > bound || length <= bound) return;
  sequence.cache.num_cached = 0;
  sequence.cache.prefill_length = length;
}

}  // namespace

void StepSchedule::clear() {
  rows.clear();
  num_tokens = num_logits = num_scored = num_prompt_tokens = 0;
}

int64_t RowStep::num_taken(std::span<const int32_t> drawn) const {
  if (num_drafts == 0) return num_logits;
  const std::span<const int32_t> own = drafts();
  return 1 + (std::ranges::mismatch(own, drawn.first(own.size())).in1 - own.begin());
}

void StepSchedule::add(Sequence& sequence, int64_t count, int64_t num_drafts) {
  const int64_t first = sequence.cache.num_cached, end = first + count;
  const int64_t prompt_tokens = sequence.request.prompt_tokens;
  RowStep& row = rows.emplace_back(RowStep{.sequence = &sequence,
                                           .first = first,
                                           .count = count + num_drafts,
                                           .tokens_begin = num_tokens,
                                           .num_drafts = num_drafts,
                                           .decodes = sequence.decodes(),
                                           .logits_begin = num_logits});
  const RowValues* const values = sequence.values.get();
  const bool is_last = end == sequence.num_tokens();
  row.gives_values = is_last && values != nullptr;
  if (is_last && (values == nullptr || !values->pools())) row.num_logits = 1 + num_drafts;
  if (sequence.is_scoring()) {
    row.num_scored = std::max<int64_t>(std::min(end, prompt_tokens - 1) - first, 0);
  }
  num_tokens += row.count;
  num_logits += row.num_logits;
  num_scored += row.num_scored;
  num_prompt_tokens += std::max<int64_t>(std::min(end, prompt_tokens) - first, 0);
}

void StepSchedule::forget(const Sequence& sequence) noexcept {
  for (RowStep& row : rows) {
    if (row.sequence == &sequence) row.sequence = nullptr;
  }
}

bool StepSchedule::adjusts_logits() const {
  return std::ranges::any_of(rows, [](const RowStep& row) {
    return row.num_logits > 0 && row.is_alive() &&
           (row.sequence->adjustment != nullptr || row.sequence->mask != nullptr);
  });
}

void schedule_step(StepSchedule& step, Sequences& running, const StepBounds& bounds) {
  step.clear();
  int64_t chunk = bounds.prefill_chunk, scored = kMaxScored;  // what is left of them
  for (const bool decodes : {true, false}) {
    for (Sequence& sequence : running) {
      const bool is_last = sequence.num_tokens() >= sequence.request.max_tokens;
      if (sequence.is_paused || sequence.cache.awaits_page) continue;
      if (sequence.cache.num_pending > 0 && is_last) continue;
      restart_above(bounds.recompute_above, sequence);
      if (sequence.decodes() != decodes) continue;
      const RowCache& cache = sequence.cache;
      int64_t count =
          (decodes ? std::min(cache.num_cached + 1, sequence.num_tokens()) : cache.prefill_length) -
          cache.num_cached;
      count = std::min(count, sequence.num_before_switch() - cache.num_cached);
      if (!decodes && count > 1) {
        count = std::min(count, chunk);
        chunk -= count;
      }
      if (sequence.is_scoring()) {
        // The last token of the prompt scores nothing.
        const int64_t left = sequence.request.prompt_tokens - 1 - sequence.cache.num_cached;
        if (count > scored && left > scored) count = scored;
        scored -= std::min(count, std::max<int64_t>(left, 0));
      }
      if (count > 0) step.add(sequence, count, decodes ? sequence.num_drafts() : 0);
    }
  }
}

}  // namespace heddle
