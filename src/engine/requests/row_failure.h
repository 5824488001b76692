#pragma once

#include <exception>
#include <string_view>

#include "heddle/engine/request.h"

namespace heddle {

/// What a row is told that it ends with.
struct RowFailure {
  RequestError code;
  std::string_view sentence;
};

/// Of a row that this exception ends, whose text it refers to.
[[nodiscard]] RowFailure failure_of(const std::exception& thrown) noexcept;

}  // namespace heddle
