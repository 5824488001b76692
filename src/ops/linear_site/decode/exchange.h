#pragma once

#include "cuda/exchange.h"

namespace heddle::cuda::linear_site {

/// Where the blocks of a launch with adapters count what is done (decode/decode_params_cuda.h).
inline constexpr ExchangeRange kDecodeExchange{64, 64};

}  // namespace heddle::cuda::linear_site
