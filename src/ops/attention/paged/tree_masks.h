#pragma once

#include <cstdint>

namespace heddle {

/// Words of 32 bits in a row of a tree mask: a bit for each of the q_len new tokens of a sequence.
constexpr int64_t tree_mask_words(int64_t q_len) { return (q_len + 31) / 32; }

}  // namespace heddle
