#pragma once

#include "heddle/c_status.h"

// Part of both C libraries, each with messages of its own.

namespace heddle::capi {

/// To be called while an exception is handled: keeps its message for last_message and gives its
/// code.
[[nodiscard]] heddle_status report_current_exception() noexcept;

/// The message that the calling thread kept last, "" where there is none.
[[nodiscard]] const char* last_message() noexcept;

/// Runs the body of a C function; what it throws becomes a status.
template <class Body>
[[nodiscard]] heddle_status guard(const Body& body) noexcept {
  try {
    body();
    return HEDDLE_OK;
  } catch (...) {
    return report_current_exception();
  }
}

}  // namespace heddle::capi
