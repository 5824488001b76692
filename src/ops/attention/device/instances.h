#pragma once

#include <string_view>
#include <type_traits>

#include "heddle/core/dtype.h"
#include "heddle/core/error.h"

namespace heddle::cuda::attention {

/// Whether `list`, words between spaces, has `word`, or is "all".
constexpr bool is_listed(std::string_view list, std::string_view word) {
  if (list == "all") return true;
  for (size_t at = list.find(word); at != list.npos; at = list.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || list[at - 1] == ' ') && (end == list.size() || list[end] == ' ')) return true;
  }
  return false;
}

/// Calls `f` with the head size `dim` as a constant. T: half, bfloat16 or float8_e4m3. A build for
/// work on one kernel has the instances of the types and head sizes that CMake's HEDDLE_DTYPES and
/// HEDDLE_HEAD_DIMS list, those of float8_e4m3 always, and throws for others.
template <class T, class F>
void with_head_dim(int dim, F&& f) {
  constexpr std::string_view kDims = HEDDLE_HEAD_DIMS;
  if constexpr (std::is_same_v<T, float8_e4m3> ||
                is_listed(HEDDLE_DTYPES, std::is_same_v<T, half> ? "f16" : "bf16")) {
    if constexpr (is_listed(kDims, "64")) {
      if (dim == 64) return f(std::integral_constant<int, 64>{});
    }
    if constexpr (is_listed(kDims, "128")) {
      if (dim == 128) return f(std::integral_constant<int, 128>{});
    }
    if constexpr (is_listed(kDims, "256")) {
      if (dim == 256) return f(std::integral_constant<int, 256>{});
    }
  }
  throw_error(ErrorCode::kUnsupported, "attention: this build has no kernels for dtype ", kDType<T>,
              " with head size ", dim, " (HEDDLE_DTYPES, HEDDLE_HEAD_DIMS)");
}

}  // namespace heddle::cuda::attention
