#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "heddle/core/dtype.h"

#include "ops/linear/format/block_format.h"

namespace heddle {

/// A block of a quantised format taken apart: what both the stored and the packed form hold. What a
/// format does not have is not set: a block of 32 weights is read in less time than zeros for 256.
struct Block {
  half d{}, m{};
  std::array<uint8_t, 16> sub_scales, sub_mins;  // [sub-block]; Q6_K's scales are int8's bits
  std::array<uint8_t, 256> codes;                // [weight]; Q8_0's codes are the bits of an int8
};

/// values[block_size] = the weights of the block.
void block_values(WeightType type, const Block& block, float* values);

/// One value of a dense type.
[[nodiscard]] float dense_value(WeightType type, const std::byte* stored);

}  // namespace heddle
