// String literals of a template: Python's escapes.
#pragma once

#include <string>
#include <string_view>

namespace heddle::model {

/// The value of a literal, given what stands between its quotes. Throws Error(kInvalidArgument) for
/// a broken escape and kUnsupported for \N{...} and for surrogates, which UTF-8 cannot hold.
std::string unescape_string(std::string_view body);

}  // namespace heddle::model
