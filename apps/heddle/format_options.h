#pragma once

#include <CLI/CLI.hpp>

#include "heddle/engine/request.h"

namespace heddle::app {

/// Declares the options that say what the text of an answer must be, of which one may be given:
/// --json-schema, --regex, --choice, --grammar.
void add_format_options(CLI::App& command, AnswerFormat& format);

}  // namespace heddle::app
