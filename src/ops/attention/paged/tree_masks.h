#pragma once

#include <cstdint>

#include "core/math.h"

namespace heddle {

/// Words of 32 bits in a row of a tree mask: a bit for each of the q_len new tokens of a sequence.
constexpr int64_t tree_mask_words(int64_t q_len) { return ceil_div(q_len, 32); }

}  // namespace heddle
