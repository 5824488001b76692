#pragma once

#include <string>

#include "help/description.h"
#include "help/page.h"

namespace heddle::app {

/// Commands, topics and examples.
[[nodiscard]] std::string program_help(const ProgramText& program, Style style);

/// Usage, options by group and examples of a command.
[[nodiscard]] std::string command_help(const CommandText& command, Style style);

/// What `heddle help WORD` shows: of a command, a topic, or the program where `word` is empty.
/// Throws Error for another word, with the nearest one that is known.
[[nodiscard]] std::string help_about(const ProgramText& program, const std::string& word,
                                     Style style);

/// "heddle generate [OPTION...] [PROMPT...]"
[[nodiscard]] std::string usage(const CommandText& command);

/// The text of an option with its default: "Tokens of an answer, at most [default: 256]".
[[nodiscard]] std::string text_with_default(const OptionText& option);

}  // namespace heddle::app
