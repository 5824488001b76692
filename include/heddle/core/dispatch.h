#pragma once

#include <string>
#include <type_traits>

#include "heddle/core/dtype.h"
#include "heddle/core/error.h"

namespace heddle {

/// Calls `f.template operator()<T>()` for the T in `Ts...` whose dtype is `dtype`; throws if none
/// matches.
template <class... Ts, class F>
void dispatch_dtype(DType dtype, const char* what, F&& f) {
  const bool found = ((kDType<Ts> == dtype ? (f.template operator()<Ts>(), true) : false) || ...);
  if (!found) {
    throw_error(ErrorCode::kUnsupported, what, ": dtype ", dtype, " is not one of",
                (std::string(" ") + name(kDType<Ts>))...);
  }
}

/// Same for a small set of compile-time integers, e.g. tile widths.
template <int... Ns, class F>
void dispatch_int(int n, const char* what, F&& f) {
  const bool found = ((Ns == n ? (f(std::integral_constant<int, Ns>{}), true) : false) || ...);
  if (!found) throw_error(ErrorCode::kUnsupported, what, " = ", n, " is not compiled in");
}

}  // namespace heddle
