#include "limits/limits_file.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <system_error>
#include <vector>

#include "heddle/core/error.h"

#include "config/toml_file.h"
#include "request_json/nearest.h"
#include "request_json/shown.h"

namespace heddle::serve {
namespace {

constexpr const char* kOption = "--limits";
constexpr int64_t kMost = 1'000'000'000;
constexpr std::string_view kNames[] = {"requests-per-minute", "tokens-per-minute", "max-rows",
                                       "adapters", "priority"};

int64_t number_of(const TomlEntry& entry, const std::string& where, int64_t least = 1,
                  int64_t most = kMost) {
  int64_t number = 0;
  const std::string text = entry.is_list ? "" : entry.values.front();
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  HEDDLE_CHECK(is_number && number >= least && number <= most, where, entry.name,
               ": expected a whole number from ", least, " to ", most);
  return number;
}

std::vector<std::string> adapters_of(const TomlEntry& entry, const std::string& where) {
  const bool has_names = entry.is_list && !entry.values.empty() &&
                         std::ranges::none_of(entry.values, &std::string::empty);
  HEDDLE_CHECK(has_names, where, entry.name,
               ": expected a list of names such as [\"base\", \"sql\", \"acme/*\"]");
  return entry.values;
}

void set(KeyLimit& limit, const TomlEntry& entry, const std::string& where) {
  if (entry.name == kNames[0]) {
    limit.requests_per_minute = number_of(entry, where);
  } else if (entry.name == kNames[1]) {
    limit.tokens_per_minute = number_of(entry, where);
  } else if (entry.name == kNames[2]) {
    limit.max_rows = number_of(entry, where);
  } else if (entry.name == kNames[3]) {
    limit.adapters = adapters_of(entry, where);
  } else if (entry.name == kNames[4]) {
    limit.priority = number_of(entry, where, -kMost, kMost);
  } else {
    throw_error(ErrorCode::kInvalidArgument, where, "there is no limit ", app::quote(entry.name),
                app::did_you_mean(entry.name, kNames));
  }
}

}  // namespace

std::map<std::string, KeyLimit> read_limits(const std::string& path,
                                            std::span<const std::string> names,
                                            std::span<const std::string> others) {
  std::map<std::string, KeyLimit> limits;
  KeyLimit of_all;
  for (const TomlSection& section : read_toml(path, kOption)) {
    const auto where = [&](int64_t line) { return toml_place(path, kOption, line); };
    if (!section.name.empty()) {
      std::vector<std::string_view> known(names.begin(), names.end());
      known.insert(known.end(), others.begin(), others.end());
      HEDDLE_CHECK(std::ranges::find(known, section.name) != known.end(), where(section.line),
                   "there is no key of the name ", app::quote(section.name),
                   app::did_you_mean(section.name, known));
      limits.try_emplace(section.name);  // one of `others` begins without a limit
    }
    KeyLimit& limit = section.name.empty() ? of_all : limits.at(section.name);
    for (const TomlEntry& entry : section.entries) set(limit, entry, where(entry.line));
    if (!section.name.empty()) continue;
    for (const std::string& name : names) limits.emplace(name, of_all);
  }
  return limits;
}

}  // namespace heddle::serve
