#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "files/json.h"

namespace heddle::grammar {

/// Where in a schema something is; a JSON pointer, once it is written. It does not outlive the
/// place around it.
class SchemaPlace {
 public:
  /// "#", or what a reference names.
  explicit SchemaPlace(std::string_view reference) : key_(reference) {}

  [[nodiscard]] SchemaPlace at(std::string_view key) const { return {*this, key, 0}; }
  [[nodiscard]] SchemaPlace at(size_t index) const { return {*this, {}, index}; }
  [[nodiscard]] std::string text() const;

 private:
  SchemaPlace(const SchemaPlace& outer, std::string_view key, size_t index)
      : outer_(&outer), key_(key), index_(index) {}

  const SchemaPlace* outer_ = nullptr;
  std::string_view key_;  // of an element of an array: has no data
  size_t index_ = 0;
};

/// Throws Error: "the schema's #/items is <what>".
[[noreturn]] void refuse(const SchemaPlace& place, const std::string& what);

/// The value that a reference within a document names: "#", "#/$defs/a~1b". nullptr: none.
[[nodiscard]] const files::Json* find_reference(const files::Json& document,
                                                std::string_view reference);

}  // namespace heddle::grammar
