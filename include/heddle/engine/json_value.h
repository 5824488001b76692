#pragma once

#include <memory>
#include <string>
#include <utility>

namespace heddle {

namespace files {
class JsonTree;
}

/// A JSON value of a request. Copies share it, and none changes it, so that threads may hand it to
/// one another.
class JsonValue {
 public:
  JsonValue() = default;  // not given
  /// JSON text, which is parsed once the request is checked. Empty: not given.
  JsonValue(std::string text) : text_(std::move(text)) {}
  JsonValue(const char* text) : text_(text) {}
  /// A value that was parsed before: for those who have heddle's sources.
  explicit JsonValue(std::shared_ptr<const files::JsonTree> value) : value_(std::move(value)) {}

  [[nodiscard]] bool empty() const { return text_.empty() && value_ == nullptr; }
  /// As text: one that was parsed in one line without spaces.
  [[nodiscard]] std::string text() const;
  /// A copy, for a caller that may change it; null where it is not given. Throws Error, which
  /// begins with `name`, where the text is no JSON or nests too deep.
  [[nodiscard]] files::JsonTree tree(const std::string& name) const;

 private:
  std::string text_;
  std::shared_ptr<const files::JsonTree> value_;  // shared by copies of a request
};

}  // namespace heddle
