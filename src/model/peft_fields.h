#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace heddle::model {

/// A field of adapter_config.json that PEFT writes, or has written.
struct AdapterField {
  /// Whether heddle reads it, or else the type that it must have: it does not change what the
  /// adapter computes.
  enum class Kind : uint8_t { kRead, kText, kNumber, kFlag, kObject };
  std::string_view name;
  Kind kind;
};

/// Null where it is none of them.
[[nodiscard]] const AdapterField* find_adapter_field(std::string_view name);

/// What to say of a field that is none of them, with the name that was meant where one is near.
[[nodiscard]] std::string unknown_adapter_field(const std::string& path, std::string_view name);

}  // namespace heddle::model
