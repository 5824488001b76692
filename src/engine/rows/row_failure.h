#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "heddle/engine/request.h"

namespace heddle {

/// Thrown where a row's logits are no numbers.
class NotFinite : public Error {
 public:
  explicit NotFinite(const std::string& what) : Error(ErrorCode::kInvalidArgument, what) {}
};

/// What a row is told that it ends with.
struct RowFailure {
  RequestError code;
  std::string_view sentence;
};

/// Of a row that this exception ends, whose text it refers to.
[[nodiscard]] RowFailure failure_of(const std::exception& thrown) noexcept;

}  // namespace heddle
