#pragma once

#include <initializer_list>

#include "ops/linear_site/call/site_call.h"

namespace heddle::testing {

/// A call of a whole site whose weights fit tensor maps.
[[nodiscard]] inline SiteCall site_call_of(int64_t rows, int64_t in,
                                           std::initializer_list<int64_t> widths,
                                           int max_rank = 0) {
  SiteCall call{.num_slices = static_cast<int>(widths.size()),
                .rows = rows,
                .in_features = in,
                .fits_tensor_maps = true,
                .max_rank = max_rank};
  int s = 0;
  for (const int64_t width : widths) {
    call.widths[s++] = width;
    call.num_outputs += width;
  }
  return call;
}

}  // namespace heddle::testing
