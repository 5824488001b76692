#pragma once

#include <cstdlib>
#include <string>

#include "heddle/core/error.h"

namespace heddle::testing {

/// Runs it; an Error is fine where its message has one line. For fuzz targets.
template <class Run>
void expect_one_line(const Run& run) {
  try {
    run();
  } catch (const Error& e) {
    if (std::string(e.what()).find('\n') != std::string::npos) std::abort();
  }
}

}  // namespace heddle::testing
