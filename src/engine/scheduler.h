#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/math.h"

namespace heddle {

/// What the scheduler sees of a running row.
struct RowState {
  int64_t num_tokens;  // prompt and answer so far
  int64_t num_cached;  // of these, tokens whose keys and values are stored; always fewer
};

/// How many tokens of each running row the next step takes in. A row that waits for its next token
/// alone always gets one; prompts share `prefill_chunk` tokens in the order of the rows, at least
/// one token for the first of them.
[[nodiscard]] std::vector<int64_t> plan_step(std::span<const RowState> rows, int64_t prefill_chunk);

enum class Admit : uint8_t { kYes, kNoRoom, kNoPages };

/// Whether a row that may grow to max_tokens (prompt and answer) can start. Pages are set aside for
/// its full length, so that a running row never has to give way.
[[nodiscard]] Admit admit(int64_t max_tokens, int64_t page_size, int num_running, int max_batch,
                          int64_t num_pages_left);

[[nodiscard]] constexpr int64_t pages_for(int64_t num_tokens, int64_t page_size) {
  return ceil_div(num_tokens, page_size);
}

}  // namespace heddle
