#include "engine/scheduler.h"

#include <algorithm>

namespace heddle {

std::vector<int64_t> plan_step(std::span<const RowState> rows, int64_t prefill_chunk) {
  std::vector<int64_t> num_tokens;
  num_tokens.reserve(rows.size());
  int64_t budget = std::max<int64_t>(prefill_chunk, 1);
  for (const RowState& row : rows) {
    const int64_t wanted = row.num_tokens - row.num_cached;
    const int64_t taken = wanted == 1 ? 1 : std::min(wanted, budget);
    if (wanted > 1) budget -= taken;
    num_tokens.push_back(taken);
  }
  return num_tokens;
}

Admit admit(int64_t max_tokens, int64_t page_size, int num_running, int max_batch,
            int64_t num_pages_left) {
  if (num_running >= max_batch) return Admit::kNoRoom;
  if (pages_for(max_tokens, page_size) > num_pages_left) return Admit::kNoPages;
  return Admit::kYes;
}

}  // namespace heddle
