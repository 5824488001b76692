#pragma once

#include <cstdint>
#include <span>

#include "heddle/core/tensor_view.h"

namespace heddle {

/// Whether two elements of a tensor of these extents and strides lie at one place, as the rows of
/// an expanded tensor do. Exact; some nanoseconds where each axis steps over all that lies inside
/// of it.
[[nodiscard]] bool elements_overlap(std::span<const int64_t> shape,
                                    std::span<const int64_t> strides);

/// A tensor that is written needs a place for each element: else what it holds in the end would
/// depend on the order of the writes.
void check_no_overlap(const char* tensor, const TensorView& t);

}  // namespace heddle
