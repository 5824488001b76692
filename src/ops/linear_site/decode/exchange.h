#pragma once

#include <cstdint>

#include "cuda/exchange.h"

namespace heddle::cuda::linear_site {

/// By which A x signals to the products after it that x is ready (x_signal_cuda.h).
struct XSignal {
  uint32_t num_begun;  // launches of A x that have begun
  uint32_t num_ready;  // of which x is ready
};
inline constexpr ExchangeRange kXSignal{64, sizeof(XSignal)};

}  // namespace heddle::cuda::linear_site
