#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace heddle::serve {

/// `name = value` in a TOML file.
struct TomlEntry {
  std::string name{};
  int64_t line = 0;                   // from 1
  std::vector<std::string> values{};  // as arguments have them: 8080 is "8080"; of a list all
  bool is_list = false;
};

/// The entries below `[name]`, or before the first such line, where the name is empty.
struct TomlSection {
  std::string name{};
  int64_t line = 1;
  std::vector<TomlEntry> entries{};  // in the order of the file
};

/// The sections of a TOML file in its order, the one without a name first. Values are texts,
/// numbers, true, false, or a list of these. Throws Error, with option, path and line, where the
/// file cannot be read, is no TOML, or has other values or sections inside of sections.
[[nodiscard]] std::vector<TomlSection> read_toml(const std::string& path, const char* option);

/// "--config FILE: line 3: ", which begins a refusal of what is there.
[[nodiscard]] std::string toml_place(const std::string& path, const char* option, int64_t line);

}  // namespace heddle::serve
