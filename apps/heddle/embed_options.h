#pragma once

#include <CLI/CLI.hpp>

#include "options.h"

namespace heddle::app {

/// Declares `heddle embed`, which is `generate` of rows that want numbers in place of answers.
void add_embed(CLI::App& app, GenerateOptions& options);

}  // namespace heddle::app
