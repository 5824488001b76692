#include "config_file.h"

#include <algorithm>
#include <filesystem>

#include <CLI/CLI.hpp>

#include "heddle/core/error.h"

namespace heddle::serve {
namespace {

constexpr std::string_view kConfig = "--config";

/// "--config FILE" or "--config=FILE"; empty: not given.
std::string path_in(const std::vector<std::string>& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == kConfig && i + 1 < arguments.size()) return arguments[i + 1];
    if (arguments[i].starts_with("--config=")) return arguments[i].substr(kConfig.size() + 1);
  }
  return {};
}

}  // namespace

std::vector<std::string> with_config_file(std::vector<std::string> arguments) {
  const std::string path = path_in(arguments);
  if (path.empty()) return arguments;
  HEDDLE_CHECK(std::filesystem::is_regular_file(path), "--config ", path,
               ": there is no such file");
  std::vector<CLI::ConfigItem> items;
  try {
    items = CLI::ConfigTOML().from_file(path);
  } catch (const CLI::Error& error) {
    throw_error(ErrorCode::kInvalidArgument, "--config ", path, ": ", error.what());
  }
  const std::vector<std::string> given = arguments;
  for (const CLI::ConfigItem& item : items) {
    HEDDLE_CHECK(item.parents.empty(), "--config ", path, ": has a section [", item.parents.front(),
                 "], expected none");
    const std::string option = "--" + item.name;
    const bool is_given = std::ranges::any_of(given, [&](const std::string& argument) {
      return argument == option || argument.starts_with(option + "=");
    });
    if (is_given) continue;
    for (const std::string& value : item.inputs) {
      if (value == "true") {
        arguments.push_back(option);
      } else if (value != "false") {
        arguments.push_back(option + "=" + value);
      }
    }
  }
  return arguments;
}

}  // namespace heddle::serve
