#pragma once

#include <string_view>

#include "heddle/core/error.h"

namespace heddle {

/// Returns what `make` returns. Where memory runs out, the error says for what, and which options
/// reduce it.
template <class Make>
auto room_for(std::string_view what, std::string_view options, const Make& make) {
  try {
    return make();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kOutOfMemory) throw;
    throw_error(ErrorCode::kOutOfMemory, "no room for ", what, ": ", error.what(),
                "; less is needed with ", options);
  }
}

}  // namespace heddle
