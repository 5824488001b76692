#include "engine/rules/schema/schema_place.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "heddle/core/error.h"

#include "files/json_value.h"
#include "files/percent.h"
#include "files/printable.h"

namespace heddle::grammar {
namespace {

constexpr size_t kLongestPlace = 150, kLongestKey = 60;

/// A part of a pointer with ~0 as ~ and ~1 as /.
std::optional<std::string> key_of(std::string_view part) {
  std::string key;
  for (size_t i = 0; i < part.size(); ++i) {
    if (part[i] != '~') {
      key += part[i];
      continue;
    }
    const char next = ++i < part.size() ? part[i] : ' ';
    if (next != '0' && next != '1') return std::nullopt;
    key += next == '0' ? '~' : '/';
  }
  return key;
}

const files::Json* element_of(const files::Json& array, std::string_view key) {
  size_t index = 0;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), index);
  const bool is_index =
      error == std::errc() && end == key.data() + key.size() && (key.size() == 1 || key[0] != '0');
  return is_index && index < array.as_array().size() ? &array.as_array()[index] : nullptr;
}

}  // namespace

std::string SchemaPlace::text() const {
  std::string text;
  for (const SchemaPlace* place = this; place != nullptr; place = place->outer_) {
    std::string part;
    if (place->outer_ == nullptr) {
      part = files::printable(place->key_, kLongestKey);
    } else if (place->key_.data() == nullptr) {
      part = '/' + std::to_string(place->index_);
    } else {
      part = '/';
      for (const char c : place->key_.substr(0, kLongestKey + 1)) {
        part += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
      }
      part = files::printable(part, kLongestKey);
    }
    if (text.size() + part.size() > kLongestPlace) return "..." + text;
    text.insert(0, part);
  }
  return text;
}

void refuse(const SchemaPlace& place, const std::string& what) {
  throw_error(ErrorCode::kInvalidArgument, "the schema's ", place.text(), " is ", what);
}

const files::Json* find_reference(const files::Json& document, std::string_view reference) {
  if (!reference.starts_with('#')) return nullptr;
  const std::string pointer = files::percent_decoded(reference.substr(1));
  const files::Json* value = &document;
  std::string_view rest = pointer;
  while (!rest.empty()) {
    if (rest[0] != '/') return nullptr;
    const size_t end = std::min(rest.find('/', 1), rest.size());
    const std::optional<std::string> key = key_of(rest.substr(1, end - 1));
    if (!key) return nullptr;
    value = value->is_array() ? element_of(*value, *key) : files::find_member(*value, *key);
    if (value == nullptr) return nullptr;
    rest.remove_prefix(end);
  }
  return value;
}

}  // namespace heddle::grammar
