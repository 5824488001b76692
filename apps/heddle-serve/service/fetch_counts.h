#pragma once

#include <cstdint>

namespace heddle::serve {

/// Downloads of adapters since the start, and what there is of them now.
struct FetchCounts {
  int64_t num_fetched = 0, num_failed = 0, num_in_flight = 0;
  int64_t cache_bytes = 0;
};

}  // namespace heddle::serve
