#pragma once

#include <cstdint>

#include "core/math.h"
#include "engine/rows/sequence.h"
#include "engine/rows/step_schedule.h"

namespace heddle {

/// Prompt tokens that one step scores: each needs a row of logits.
inline constexpr int64_t kMaxScored = 32;

struct StepBounds {
  int64_t prefill_chunk;        // prompt tokens in a step, at least 1
  int64_t recompute_above = 0;  // DecoderConfig::recompute_above; 0: nothing is computed anew
};

/// Schedules the next step of the running sequences, without allocating. A sequence that decodes,
/// and one that has a single token of its prompt left, always takes part; all other prompts share
/// the chunk in the order of the sequences. One that has grown beyond recompute_above is prefilled
/// anew.
void schedule_step(StepSchedule& step, Sequences& running, const StepBounds& bounds);

[[nodiscard]] constexpr int64_t pages_for(int64_t num_tokens, int64_t page_size) {
  return ceil_div(num_tokens, page_size);
}

/// Pages of a sequence of max_tokens, prompt and answer: the last token is drawn, never computed.
[[nodiscard]] constexpr int64_t pages_for_row(int64_t max_tokens, int64_t page_size) {
  return pages_for(max_tokens - 1, page_size);
}

}  // namespace heddle
