#pragma once

#include <string>

#include "help/description.h"

namespace heddle::app {

/// Scripts that complete command lines of heddle, with all they need inside: they do not start the
/// program.
[[nodiscard]] std::string bash_completion(const ProgramText& program);
[[nodiscard]] std::string zsh_completion(const ProgramText& program);
[[nodiscard]] std::string fish_completion(const ProgramText& program);

/// The script for `shell`: bash, zsh or fish.
[[nodiscard]] std::string completion_script(const ProgramText& program, const std::string& shell);

/// The candidates for an option or argument of kind kTopic or kChoice; else none.
[[nodiscard]] std::vector<std::string> choices_of(const ProgramText& program,
                                                  const OptionText& option);

/// `text` with `escape` before each of `letters`.
[[nodiscard]] std::string escaped(const std::string& text, const std::string& letters,
                                  const std::string& escape);

}  // namespace heddle::app
