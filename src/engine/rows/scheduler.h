#pragma once

#include <cstdint>
#include <span>

#include "core/math.h"

namespace heddle {

/// What the scheduler sees of a running row.
struct RowState {
  int64_t num_tokens;  // prompt and answer so far
  int64_t num_cached;  // of these, tokens whose keys and values are stored; always fewer
};

/// How many tokens of each running row the next step takes in, into num_tokens [rows.size()]. A row
/// that waits for its next token alone always gets one; prompts share `prefill_chunk` tokens, at
/// least 1, in the order of the rows.
void plan_step(std::span<const RowState> rows, int64_t prefill_chunk,
               std::span<int64_t> num_tokens);

[[nodiscard]] constexpr int64_t pages_for(int64_t num_tokens, int64_t page_size) {
  return ceil_div(num_tokens, page_size);
}

/// Pages of a row of max_tokens, prompt and answer: the last token is drawn and never run.
[[nodiscard]] constexpr int64_t pages_for_row(int64_t max_tokens, int64_t page_size) {
  return pages_for(max_tokens - 1, page_size);
}

}  // namespace heddle
