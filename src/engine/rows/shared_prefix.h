#pragma once

#include <cstdint>
#include <span>

#include "engine/rows/sequence.h"

namespace heddle {

/// Finds the one of `others`, which are queued before the sequence, with which it shares the most
/// keys and values at its beginning, in whole pages; it then starts after that one.
void share_prefix(Sequence& sequence, std::span<Sequence* const> others, int64_t page_size);

}  // namespace heddle
