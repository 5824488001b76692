#include "engine/cache/page_identity.h"

#include <algorithm>
#include <optional>

#include "heddle/core/error.h"

#include "files/printable.h"

namespace heddle {
namespace {

bool is_of_name(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; }
bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

/// The first line of `text`, which is taken off it.
std::string_view take_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

/// The value of a part; nothing where the text has no such part.
std::optional<std::string_view> value_of(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const std::string_view line = take_line(text);
    if (line.size() > name.size() && line.starts_with(name) && line[name.size()] == '=') {
      return line.substr(name.size() + 1);
    }
  }
  return std::nullopt;
}

}  // namespace

void PageIdentity::add(std::string_view name, std::string_view value) {
  HEDDLE_CHECK(!name.empty() && std::ranges::all_of(name, is_of_name), "identity: the name ",
               files::quote(name), " has more than a-z, 0-9 and _");
  HEDDLE_CHECK(std::ranges::none_of(value, is_control), "identity: the value of ", name,
               " has control characters: ", files::quote(value));
  HEDDLE_CHECK(!value_of(text_, name), "identity: ", name, " is added twice");
  const size_t size = text_.size() + name.size() + value.size() + 2;
  HEDDLE_CHECK(size <= kMaxBytes, "identity: has ", size, " bytes with ", name, ", at most ",
               kMaxBytes, " are kept");
  text_.append(name).append("=").append(value).append("\n");
}

void PageIdentity::add(std::string_view name, int64_t value) { add(name, std::to_string(value)); }

std::string identity_difference(std::string_view theirs, std::string_view ours) {
  using files::printable;
  for (std::string_view rest = ours; !rest.empty();) {
    const std::string_view line = take_line(rest);
    const std::string_view name = line.substr(0, line.find('='));
    const auto theirs_is = value_of(theirs, name), ours_is = value_of(ours, name);
    if (theirs_is == ours_is) continue;
    std::string sentence = "was made with";
    if (theirs_is) {
      sentence += " " + printable(name) + " " + printable(*theirs_is) + ", this engine has ";
    } else {
      sentence += "out " + printable(name) + ", this engine has ";
    }
    return sentence + printable(ours_is.value_or(""));
  }
  for (std::string_view rest = theirs; !rest.empty();) {
    const std::string_view line = take_line(rest);
    const std::string_view name = line.substr(0, line.find('='));
    if (!value_of(ours, name)) {
      return "was made with " + printable(line) + ", which this engine does not have";
    }
  }
  return "was made for another engine";
}

}  // namespace heddle
