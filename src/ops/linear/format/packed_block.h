#pragma once

#include <cstddef>

#include "ops/linear/format/block_codec.h"

namespace heddle {

/// Reads output `lane` of one block of a group: `packed` is the start of the group's block. Types
/// that are not dense.
[[nodiscard]] Block read_packed_block(WeightType type, int lane, const std::byte* packed);

}  // namespace heddle
