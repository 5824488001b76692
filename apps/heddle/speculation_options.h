#pragma once

#include <CLI/CLI.hpp>

#include "heddle/engine/speculation.h"

namespace heddle::app {

/// The options that say how an engine drafts tokens, and --speculative-config, vLLM's for the same;
/// group "Engine".
void add_speculation_options(CLI::App& command, SpeculationOptions& options);

}  // namespace heddle::app
