#include "heddle/engine/json_value.h"

#include "files/json_text.h"
#include "files/json_tree.h"
#include "files/json_value.h"

namespace heddle {
namespace {

/// No honest conversation nests deeper; values of the template have a bound of their own.
constexpr size_t kMaxDepth = 100;

}  // namespace

std::string JsonValue::text() const {
  return value_ == nullptr ? text_ : files::json_text(**value_);
}

files::JsonTree JsonValue::tree(const std::string& name) const {
  if (!text_.empty()) return files::parse_json(text_, name, {.depth = kMaxDepth});
  files::JsonTree copy;
  if (value_ != nullptr) *copy = **value_;
  return copy;
}

}  // namespace heddle
