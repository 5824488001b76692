#include "engine/rows/scheduler.h"

#include <algorithm>

namespace heddle {

void plan_step(std::span<const RowState> rows, int64_t prefill_chunk,
               std::span<int64_t> num_tokens) {
  int64_t budget = prefill_chunk;
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t wanted = rows[i].num_tokens - rows[i].num_cached;
    num_tokens[i] = wanted == 1 ? 1 : std::min(wanted, budget);
    if (wanted > 1) budget -= num_tokens[i];
  }
}

}  // namespace heddle
