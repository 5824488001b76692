#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "files/json.h"

namespace heddle::app {

/// Reads the fields of one object, such as a row; every error names file, line and field.
class RowReader {
 public:
  using json = files::Json;

  /// `row` outlives this. `where` begins every error.
  RowReader(const json& row, std::string where) : row_(row), where_(std::move(where)) {}

  /// Refuses a field that is not one of `known`.
  void check_fields(std::span<const std::string_view> known) const;
  /// check_fields, where fields that are null may have any name.
  void check_given_fields(std::span<const std::string_view> known) const;

  /// The field's value, or nullptr when it is absent or null.
  [[nodiscard]] const json* find(const char* field) const;
  [[nodiscard]] std::string text(const char* field, const json& value) const;
  /// The field, which must be there.
  [[nodiscard]] std::string required_text(const char* field) const;
  /// The field, which is not empty where it is given; empty when it is absent or null.
  [[nodiscard]] std::string optional_text(const char* field) const;
  [[nodiscard]] int64_t integer(const char* field, int64_t fallback, int64_t low,
                                int64_t high) const;
  [[nodiscard]] float number(const char* field, float fallback, double low, double high) const;
  [[nodiscard]] bool flag(const char* field, bool fallback) const;
  /// The field, an array; nullptr when it is absent or null. `of`: what it should hold.
  [[nodiscard]] const json* array(const char* field, const char* of) const;
  /// The field as JSON text, empty when it is absent or null.
  [[nodiscard]] std::string echoed(const char* field) const;
  [[nodiscard]] std::vector<std::string> stop_strings(
      const std::vector<std::string>& fallback) const;

  [[nodiscard]] const std::string& where() const { return where_; }

 private:
  void check_field(std::string_view name, std::span<const std::string_view> known) const;

  const json& row_;
  const std::string where_;
};

/// The token ids in an array; errors begin with `what`, its name.
[[nodiscard]] std::vector<int32_t> token_ids_of(const files::Json& array, const std::string& what);

}  // namespace heddle::app
