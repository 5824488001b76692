#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "model/adapters/kinds/adapter_method.h"

namespace heddle::model {

/// Of a field of adapter_config.json that PEFT writes, or has written: whether heddle reads it, or
/// else the type that it must have, since it does not change what the adapter computes.
enum class AdapterFieldKind : uint8_t { kRead, kText, kNumber, kFlag, kObject };

/// Nothing where it is no field of the method.
[[nodiscard]] std::optional<AdapterFieldKind> find_adapter_field(AdapterMethod method,
                                                                 std::string_view name);

/// The warning for another field, with the name that was probably meant.
[[nodiscard]] std::string unknown_adapter_field(const std::string& path, AdapterMethod method,
                                                std::string_view name);

}  // namespace heddle::model
