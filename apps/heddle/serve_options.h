#pragma once

#include <CLI/CLI.hpp>

#include "options.h"

namespace heddle::app {

/// Declares `heddle serve`.
void add_serve(CLI::App& app, ServeOptions& options);

/// Declares `heddle run-batch`.
void add_run_batch(CLI::App& app, BatchOptions& options);

/// Checks the options of sources against each other, and gives the engine the folder of fetched
/// adapters. Throws Error.
void complete_fetch(ServeOptions& options);

}  // namespace heddle::app
