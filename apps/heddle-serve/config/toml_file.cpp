#include "config/toml_file.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

#include "heddle/core/error.h"

#include "request_json/shown.h"

namespace heddle::serve {
namespace {

/// Nothing: it is no text, number, true or false.
std::optional<std::string> text_of(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
  if (const auto* whole = node.as_integer()) return std::to_string(whole->get());
  const auto* const number = node.as_floating_point();
  if (number == nullptr) return std::nullopt;
  char digits[32];
  const auto end = std::to_chars(std::begin(digits), std::end(digits), number->get()).ptr;
  return std::string(digits, end);
}

class Reader {
 public:
  Reader(const std::string& path, const char* option) : path_(path), option_(option) {}

  std::vector<TomlSection> read() const {
    const toml::table root = parse();
    std::vector<TomlSection> sections(1);
    for (const auto& [key, node] : root) {
      const std::string name(key.str());
      const toml::table* const table = node.as_table();
      if (table == nullptr) {
        sections.front().entries.push_back(entry(name, key, node));
        continue;
      }
      TomlSection section{.name = name, .line = line_of(key)};
      for (const auto& [inner, value] : *table) {
        section.entries.push_back(entry(std::string(inner.str()), inner, value));
      }
      std::ranges::sort(section.entries, {}, &TomlEntry::line);
      sections.push_back(std::move(section));
    }
    std::ranges::sort(sections.front().entries, {}, &TomlEntry::line);
    std::ranges::sort(sections.begin() + 1, sections.end(), {}, &TomlSection::line);
    return sections;
  }

 private:
  static int64_t line_of(const toml::key& key) { return key.source().begin.line; }
  [[nodiscard]] std::string at(int64_t line) const { return toml_place(path_, option_, line); }

  toml::table parse() const {
    HEDDLE_CHECK(std::filesystem::is_regular_file(path_), option_, ' ', app::shown(path_),
                 ": there is no such file");
    std::ifstream file(path_);
    HEDDLE_CHECK(file, option_, ' ', app::shown(path_), ": cannot be read");
    try {
      return toml::parse(file);
    } catch (const toml::parse_error& error) {
      throw_error(ErrorCode::kInvalidArgument, at(error.source().begin.line),
                  app::shown(std::string(error.description())));
    }
  }

  TomlEntry entry(const std::string& name, const toml::key& key, const toml::node& node) const {
    TomlEntry read{.name = name, .line = line_of(key), .is_list = node.is_array()};
    const auto add = [&](const toml::node& value) {
      std::optional<std::string> text = text_of(value);
      HEDDLE_CHECK(text, at(read.line), app::quote(name),
                   ": expected a text, a number, true, false or a list of these");
      read.values.push_back(*std::move(text));
    };
    if (const toml::array* const list = node.as_array()) {
      for (const toml::node& value : *list) add(value);
    } else {
      add(node);
    }
    return read;
  }

  const std::string& path_;
  const char* option_;
};

}  // namespace

std::vector<TomlSection> read_toml(const std::string& path, const char* option) {
  return Reader(path, option).read();
}

std::string toml_place(const std::string& path, const char* option, int64_t line) {
  return std::string(option) + " " + app::shown(path) + ": line " + std::to_string(line) + ": ";
}

}  // namespace heddle::serve
