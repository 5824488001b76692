#pragma once

#include "options.h"

namespace heddle::app {

/// Runs all rows; returns the program's exit code: 0, or 1 when a row failed. Throws Error, before
/// anything is written, when the input is wrong.
int generate(const GenerateOptions& options);

}  // namespace heddle::app
