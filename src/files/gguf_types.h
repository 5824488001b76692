#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>

#include "heddle/ops/linear.h"

namespace heddle::files {

/// Types of metadata values, numbered as in the file.
enum class GgufType : uint32_t {
  kUInt8,
  kInt8,
  kUInt16,
  kInt16,
  kUInt32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUInt64,
  kInt64,
  kFloat64,
};
/// "u32", "string" and so on.
[[nodiscard]] const char* name(GgufType type);
inline std::ostream& operator<<(std::ostream& os, GgufType type) { return os << name(type); }
/// Bytes of one value; 0 for strings and arrays, which have no fixed size, and for numbers that
/// stand for no type.
[[nodiscard]] size_t fixed_size(GgufType type);

/// A tensor type of ggml: a row is a chain of blocks, each `block_bytes` for `block_weights`
/// weights.
struct GgmlType {
  uint32_t id;
  const char* name;
  int block_weights, block_bytes;
};
/// Null for a number that is not known, not even as one that heddle does not support.
[[nodiscard]] const GgmlType* find_ggml_type(uint32_t id);
/// "Q4_K", "IQ2_XS" or "type 97".
[[nodiscard]] std::string ggml_type_name(uint32_t id);
/// The format of ggml's number, if heddle has it.
[[nodiscard]] std::optional<WeightType> weight_type_of(uint32_t id);
/// "F32, F16, Q4_0, ...": what weight_type_of takes.
[[nodiscard]] std::string supported_ggml_types();

}  // namespace heddle::files
