#pragma once

#include <string>
#include <vector>

namespace heddle::serve {

/// The arguments of the program with the options of the TOML file that --config names, but for
/// those that the arguments have themselves. `port = 8080` is --port 8080, a list is an option that
/// is given many times, `log-json = true` a flag. Throws Error where the file cannot be read, or
/// has a section.
[[nodiscard]] std::vector<std::string> with_config_file(std::vector<std::string> arguments);

}  // namespace heddle::serve
