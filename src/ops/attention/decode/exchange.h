#pragma once

#include "cuda/exchange.h"

namespace heddle::cuda::attention {

/// Counters of sequences whose keys several blocks share, u32. They are zero between calls.
inline constexpr ExchangeRange kDecodeCounters{16 << 10, 8 << 10};

}  // namespace heddle::cuda::attention
