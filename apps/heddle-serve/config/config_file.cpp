#include "config/config_file.h"

#include <algorithm>
#include <string_view>

#include "heddle/core/error.h"

#include "config/toml_file.h"
#include "request_json/nearest.h"
#include "request_json/shown.h"

namespace heddle::serve {
namespace {

constexpr const char* kConfig = "--config";

/// "--config FILE" or "--config=FILE"; empty: not given.
std::string path_in(const std::vector<std::string>& arguments) {
  const std::string with_value = std::string(kConfig) + "=";
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == kConfig && i + 1 < arguments.size()) return arguments[i + 1];
    if (arguments[i].starts_with(with_value)) return arguments[i].substr(with_value.size());
  }
  return {};
}

/// The options that a file may have, without "--". A file names no other file.
std::vector<std::string> names_of(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      if (name != "help" && name != "config") names.push_back(name);
    }
  }
  return names;
}

void check_name(const std::string& name, const std::string& where, const CLI::App& command) {
  const std::vector<std::string> names = names_of(command);
  if (std::ranges::find(names, name) != names.end()) return;
  const std::vector<std::string_view> known(names.begin(), names.end());
  throw_error(ErrorCode::kInvalidArgument, where, "there is no option ", app::quote(name),
              app::did_you_mean(name, known));
}

}  // namespace

std::string Configured::with_place(const std::string& error) const {
  for (const auto& [option, place] : places) {
    if (error.starts_with(option + ":") || error.starts_with(option + " ")) {
      return error + " (" + place + ")";
    }
  }
  return error;
}

Configured with_config_file(std::vector<std::string> arguments, const CLI::App& command) {
  Configured configured{.arguments = std::move(arguments)};
  const std::string path = path_in(configured.arguments);
  if (path.empty()) return configured;
  const std::vector<TomlSection> sections = read_toml(path, kConfig);
  if (sections.size() > 1) {
    throw_error(ErrorCode::kInvalidArgument, toml_place(path, kConfig, sections[1].line),
                "has a section ", app::quote(sections[1].name), ", expected none");
  }
  const std::vector<std::string> given = configured.arguments;
  for (const TomlEntry& entry : sections.front().entries) {
    check_name(entry.name, toml_place(path, kConfig, entry.line), command);
    const std::string option = "--" + entry.name;
    const bool is_given = std::ranges::any_of(given, [&](const std::string& argument) {
      return argument == option || argument.starts_with(option + "=");
    });
    if (is_given) continue;
    configured.places[option] = app::shown(path) + ": line " + std::to_string(entry.line);
    for (const std::string& value : entry.values) {
      if (value == "true") {
        configured.arguments.push_back(option);
      } else if (value != "false") {
        configured.arguments.push_back(option + "=" + value);
      }
    }
  }
  return configured;
}

}  // namespace heddle::serve
