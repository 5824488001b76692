#pragma once

#include <CLI/CLI.hpp>

#include "options.h"

namespace heddle::app {

/// Declares `heddle serve`.
void add_serve(CLI::App& app, ServeOptions& options);

}  // namespace heddle::app
