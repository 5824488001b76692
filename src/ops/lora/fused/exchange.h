#pragma once

#include "cuda/exchange.h"

namespace heddle::cuda::lora {

/// Where the blocks of a launch of both halves count those that have begun: one word of 8 bytes.
inline constexpr ExchangeRange kArrivals{0, 8};
/// Partial sums of h, each with the number of its launch.
inline constexpr ExchangeRange kPartials{26 << 10, ExchangeRange::kToTheEnd};

}  // namespace heddle::cuda::lora
