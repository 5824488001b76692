#pragma once

#include <string_view>

#include "heddle/core/error.h"

namespace heddle {

/// What `make` gives. Where memory lacks, the error says for what, and which options ask for less.
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
