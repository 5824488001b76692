#pragma once

#include <cstdint>
#include <span>

#include "engine/rows/sequence.h"

namespace heddle {

/// The first position at which the row's adapter acts on linear layers: of one with invocation
/// tokens (aLoRA) where the last invocation in the prompt begins, past all positions without one.
[[nodiscard]] int64_t first_active(const Sequence& row);

/// Finds the one of `others`, which wait in front of the row, that shares most keys and values at
/// its beginning, in whole pages; the row then starts behind it.
void share_prefix(Sequence& row, std::span<Sequence* const> others, int64_t page_size);

}  // namespace heddle
