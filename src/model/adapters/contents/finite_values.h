#pragma once

#include <optional>
#include <span>
#include <string>

#include "model/adapters/adapter.h"

namespace heddle::model {

/// The first of values that is NaN or infinite, or would be, rounded to `rounded_to`; -1: none. It
/// looks at eight bytes at a time.
[[nodiscard]] int64_t find_not_finite(DType dtype, std::span<const std::byte> values,
                                      std::optional<DType> rounded_to);

/// Error(kInvalidArgument) that names a value of a file that find_not_finite has found.
[[noreturn]] void refuse_value(const std::string& path, const StoredValues& values, int64_t at,
                               std::optional<DType> rounded_to);

}  // namespace heddle::model
