#pragma once

#include <cstdint>

#include "cuda/exchange.h"

#include "ops/linear_site/portable/select_portable.h"

namespace heddle::cuda::linear_site {

/// How many blocks have put their parts of a tile's sums to memory; zero between launches.
inline constexpr ExchangeRange kTileCounters{24 << 10, kPortableCounters * sizeof(uint32_t)};

}  // namespace heddle::cuda::linear_site
