#pragma once

#include <cstdint>

#include "cuda/exchange.h"

namespace heddle::cuda::attention {

/// Counters of sequences whose keys several blocks share, u32. They are zero between calls.
inline constexpr ExchangeRange kDecodeCounters{16 << 10, 8 << 10};
/// Of prefill for compute capability 9.0: items that have been taken and blocks that have ended.
inline constexpr ExchangeRange kPrefillCounter{32, 2 * sizeof(uint32_t)};

}  // namespace heddle::cuda::attention
