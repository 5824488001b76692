#include "model/config/settings.h"

#include <algorithm>
#include <cmath>

#include "heddle/core/error.h"

#include "files/json_text.h"
#include "files/json_value.h"
#include "files/printable.h"

namespace heddle::model {
namespace {

/// Far above any model, low enough that products of two extents stay within 64 bits.
constexpr int64_t kMaxExtent = int64_t{1} << 31;

std::string text_of(const files::Json& value) { return files::printable(files::json_text(value)); }

}  // namespace

int64_t Settings::extent(const SettingName& name) const {
  const int64_t value = integer(name);
  HEDDLE_CHECK(value >= 1 && value < kMaxExtent, where(name), " is ", value, ", expected 1 to ",
               kMaxExtent - 1);
  return value;
}

double Settings::positive(const SettingName& name) const {
  const double value = number(name);
  HEDDLE_CHECK(std::isfinite(value) && value > 0, where(name), " is ", value,
               ", expected a positive number");
  return value;
}

GgufSettings::GgufSettings(const files::GgufFile& file)
    : file_(file), architecture_(file.get<std::string_view>("general.architecture")) {}

std::string GgufSettings::key(const SettingName& name) const {
  return architecture_ + "." + std::string(name.gguf);
}

std::string GgufSettings::read(const SettingName& name) const {
  return *read_.insert(key(name)).first;
}

bool GgufSettings::has(const SettingName& name) const {
  return !name.gguf.empty() && file_.find(read(name)) != nullptr;
}

int64_t GgufSettings::integer(const SettingName& name) const {
  return file_.get<int64_t>(read(name));
}
double GgufSettings::number(const SettingName& name) const { return file_.get<double>(read(name)); }
bool GgufSettings::flag(const SettingName& name) const { return file_.get<bool>(read(name)); }

std::string GgufSettings::text(const SettingName& name) const {
  return std::string(file_.get<std::string_view>(read(name)));
}

std::vector<double> GgufSettings::numbers(const SettingName& name) const {
  return file_.get_array<double>(read(name));
}

std::vector<std::string> GgufSettings::texts(const SettingName& name) const {
  const auto views = file_.get_array<std::string_view>(read(name));
  return {views.begin(), views.end()};
}

std::vector<std::string> GgufSettings::unread() const {
  const std::string prefix = architecture_ + ".";
  std::vector<std::string> keys;
  for (const files::GgufValue& value : file_.metadata()) {
    if (value.key.starts_with(prefix) && !read_.contains(value.key)) keys.emplace_back(value.key);
  }
  return keys;
}

std::string JsonSettings::key(const SettingName& name) const {
  return section_ + std::string(name.folder);
}

const files::Json* JsonSettings::find(const SettingName& name) const {
  if (name.folder.empty()) return nullptr;
  const files::Json* value = &object_;
  for (size_t begin = 0; begin <= name.folder.size();) {
    const size_t end = std::min(name.folder.find('.', begin), name.folder.size());
    const std::string_view part = name.folder.substr(begin, end - begin);
    if (begin > 0 && !value->is_object()) {
      wrong({name.folder.substr(0, begin - 1), ""}, *value, "an object");
    }
    const files::Json* found = files::find_member(*value, part);
    if (begin == 0) {
      read_.insert(std::string(part));
      if (found == nullptr && defaults_ != nullptr) found = files::find_member(*defaults_, part);
    }
    if (found == nullptr || found->is_null()) return nullptr;
    value = found;
    begin = end + 1;
  }
  return value;
}

const files::Json& JsonSettings::get(const SettingName& name) const {
  const files::Json* const value = find(name);
  HEDDLE_CHECK(value != nullptr, path_, ": has no ", key(name));
  return *value;
}

void JsonSettings::wrong(const SettingName& name, const files::Json& value,
                         const char* expected) const {
  throw_error(ErrorCode::kInvalidArgument, where(name), " is ", text_of(value), ", expected ",
              expected);
}

bool JsonSettings::has(const SettingName& name) const { return find(name) != nullptr; }

int64_t JsonSettings::integer(const SettingName& name) const {
  const files::Json& value = get(name);
  if (const auto number = files::integer_of(value)) return *number;
  if (value.is_double()) {
    const double number = value.get_double();
    if (std::trunc(number) == number && std::abs(number) < 0x1p53) {
      return static_cast<int64_t>(number);
    }
  }
  wrong(name, value, "an integer");
}

double JsonSettings::number(const SettingName& name) const {
  const files::Json& value = get(name);
  if (!value.is_number()) wrong(name, value, "a number");
  return files::number_of(value);
}

bool JsonSettings::flag(const SettingName& name) const {
  const files::Json& value = get(name);
  if (!value.is_bool()) wrong(name, value, "true or false");
  return value.get_bool();
}

std::string JsonSettings::text(const SettingName& name) const {
  const files::Json& value = get(name);
  if (!value.is_string()) wrong(name, value, "a string");
  return std::string(files::text_of(value));
}

std::vector<double> JsonSettings::numbers(const SettingName& name) const {
  const files::Json& value = get(name);
  if (!value.is_array()) wrong(name, value, "an array of numbers");
  std::vector<double> numbers;
  for (const files::Json& element : value.get_array()) {
    if (!element.is_number()) wrong(name, value, "an array of numbers");
    numbers.push_back(files::number_of(element));
  }
  return numbers;
}

std::vector<std::string> JsonSettings::texts(const SettingName& name) const {
  const files::Json& value = get(name);
  if (!value.is_array()) wrong(name, value, "an array of strings");
  std::vector<std::string> texts;
  for (const files::Json& element : value.get_array()) {
    if (!element.is_string()) wrong(name, value, "an array of strings");
    texts.emplace_back(files::text_of(element));
  }
  return texts;
}

std::vector<std::string> JsonSettings::unread() const {
  std::vector<std::string> keys;
  for (const auto& member : object_.as_object()) {
    const std::string key(member.key());
    if (!read_.contains(key)) keys.push_back(section_ + key);
  }
  std::ranges::sort(keys);
  return keys;
}

}  // namespace heddle::model
