#pragma once

#include <cstddef>
#include <cstdint>

#include "heddle/ops/linear.h"

namespace heddle {

/// Packs the rows of one group (packed_layout.h): `num_rows`, 1 to 16, of `row_bytes` each, from
/// `stored` on. Everything in the group's bytes is written; outputs without a row become zeros.
void pack_group(WeightType type, int64_t in_features, const std::byte* stored, size_t row_bytes,
                int num_rows, std::byte* packed);

}  // namespace heddle
