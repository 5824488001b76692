#pragma once

#include <cstdint>
#include <span>

#include "heddle/core/tensor_view.h"

namespace heddle {

/// To tell whether elements overlap is a search, which ends after so many steps, some milliseconds.
inline constexpr int64_t kMaxOverlapTries = int64_t{1} << 20;

/// Whether two elements of a tensor of these extents and strides lie at one place, as the rows of
/// an expanded tensor do. Some nanoseconds where each axis steps over all that lies inside of it,
/// in any order of the axes. Exact, but that elements overlap where kMaxOverlapTries do not tell:
/// strides that no tensor of this library has.
[[nodiscard]] bool elements_overlap(std::span<const int64_t> shape,
                                    std::span<const int64_t> strides);

/// A tensor that is written needs a place for each element: else what it holds in the end would
/// depend on the order of the writes.
void check_no_overlap(const char* tensor, const TensorView& t);

}  // namespace heddle
