#pragma once

#include <cstddef>

#include "ops/linear/block_codec.h"

namespace heddle {

/// Writes output `lane` of one block of a group: `packed` is the start of the group's block. Types
/// that are not dense.
void write_packed_block(WeightType type, const Block& block, int lane, std::byte* packed);

/// The inverse of write_packed_block.
[[nodiscard]] Block read_packed_block(WeightType type, int lane, const std::byte* packed);

}  // namespace heddle
