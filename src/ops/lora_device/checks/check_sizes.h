#pragma once

#include "heddle/core/product.h"

namespace heddle {

/// Of functions that tell a size: up to here the sums and products of LoRA's sizes fit 64 bits.
inline void check_sizes(int64_t num_tokens, int64_t max_rank) {
  constexpr int64_t kMaxSizedRank = 1 << 16;
  check_extent("num_tokens", num_tokens);
  check_extent("max_rank", max_rank, kMaxSizedRank);
}

}  // namespace heddle
