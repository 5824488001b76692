#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "files/json_value.h"

namespace heddle::tokenizer {

/// A value of a JSON file together with its place, which begins the errors about it:
/// "tokenizer.json: normalizer.pattern is a string, expected an object". A view of the value.
class JsonNode {
 public:
  /// `path`: "tokenizer.json: normalizer"; of the whole file "tokenizer.json".
  JsonNode(const files::Json& value, std::string path) : value_(&value), path_(std::move(path)) {}

  [[nodiscard]] const files::Json& value() const { return *value_; }
  [[nodiscard]] const std::string& path() const { return path_; }

  /// The member of an object; one that is absent or null is an Error of at() and none for find().
  [[nodiscard]] JsonNode at(const char* key) const;
  [[nodiscard]] std::optional<JsonNode> find(const char* key) const;
  [[nodiscard]] JsonNode element(size_t index) const;

  [[nodiscard]] std::string_view string() const;
  [[nodiscard]] bool boolean() const;
  /// In [0, last].
  [[nodiscard]] int64_t integer(int64_t last) const;
  [[nodiscard]] const files::JsonArray& array() const;
  [[nodiscard]] const files::JsonObject& object() const;

  /// find(key), or what counts where it is absent.
  [[nodiscard]] bool boolean_or(const char* key, bool absent) const;

  /// Error(kUnsupported) about a member that is none of `keys`.
  void allow_only(std::initializer_list<std::string_view> keys) const;
  /// Error(kUnsupported): "tokenizer.json: normalizer of type 'Nmt' is not supported".
  [[noreturn]] void refuse_type() const;

 private:
  void expect(bool holds, std::string_view expected) const;

  const files::Json* value_;
  std::string path_;
};

/// The components of a file's `node`: itself, or those that its type "Sequence" lists under `key`,
/// in order; none where it is null. Error(kUnsupported) where there are more than 64.
[[nodiscard]] std::vector<JsonNode> flat_sequence(const JsonNode& node, const char* key);

}  // namespace heddle::tokenizer
