#pragma once

#include <string>

namespace CLI {
class App;
}

namespace heddle::app {

/// The arguments of the commands help and completion.
struct HelpOptions {
  std::string topic;  // empty: the program
  std::string shell;  // bash, zsh or fish
};

/// Declares the commands help, completion and man. `options` must outlive `app`.
void add_help_commands(CLI::App& app, HelpOptions& options);

/// Prints the help of the command that was called with --help, or of the program.
void print_help(const CLI::App& app);

/// Where one of the commands help, completion and man was called, prints its output; else
/// returns false. Throws Error for a topic that is not known.
[[nodiscard]] bool run_help_command(const CLI::App& app, const HelpOptions& options);

}  // namespace heddle::app
