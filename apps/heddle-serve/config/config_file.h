#pragma once

#include <map>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace heddle::serve {

/// The arguments of the program with the options of a file of --config.
struct Configured {
  std::vector<std::string> arguments{};
  std::map<std::string, std::string> places{};  // of the options of the file: "FILE: line 3"

  /// An error of the arguments, with the place of its option where the file has it.
  [[nodiscard]] std::string with_place(const std::string& error) const;
};

/// The arguments with the options of the TOML file that --config names, but for those that the
/// arguments have themselves. `port = 8080` is --port 8080, a list is an option that is given many
/// times, `log-json = true` a flag. Throws Error, with file and line, where the file is no TOML,
/// has a section, or a name that is none of the long options of `command`.
[[nodiscard]] Configured with_config_file(std::vector<std::string> arguments,
                                          const CLI::App& command);

}  // namespace heddle::serve
