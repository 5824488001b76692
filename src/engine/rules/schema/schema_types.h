#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "files/json.h"

namespace heddle::grammar {

/// Types of JSON values, as bits.
enum SchemaTypes : uint32_t {
  kNullType = 1,
  kBooleanType = 2,
  kIntegerType = 4,
  kFractionType = 8,  // numbers that are no integers
  kNumberType = kIntegerType | kFractionType,
  kStringType = 16,
  kArrayType = 32,
  kObjectType = 64,
  kAllTypes = 127
};

/// "integer", "object", ...
[[nodiscard]] std::optional<uint32_t> type_named(std::string_view name);
/// Of a schema's "type", which is right; else all.
[[nodiscard]] uint32_t types_in(const files::Json& type);
/// That of a value; 1.0 is an integer, as JSON Schema has it.
[[nodiscard]] uint32_t type_of(const files::Json& value);

enum class KeywordKind : uint8_t {
  kAnnotation,  // says nothing of the answer
  kGeneral,     // type, enum, $ref, ...
  kNumber,
  kString,
  kArray,
  kObject,
  kUnsupported,  // part of JSON Schema, but not held
  kUnknown
};

[[nodiscard]] KeywordKind keyword_kind(std::string_view keyword);
/// The keyword that is spelled most alike; empty: none is.
[[nodiscard]] std::string_view similar_keyword(std::string_view keyword);

}  // namespace heddle::grammar
