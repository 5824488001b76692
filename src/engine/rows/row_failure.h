#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "heddle/engine/request.h"

namespace heddle {

/// Thrown where the logits of a request are NaN or infinite.
class NotFinite : public Error {
 public:
  explicit NotFinite(const std::string& what) : Error(ErrorCode::kInvalidArgument, what) {}
};

/// The error that a request ends with.
struct RowFailure {
  RequestError code;
  std::string_view sentence;
};

/// Of a request that this exception ends; refers to the exception's text.
[[nodiscard]] RowFailure failure_of(const std::exception& thrown) noexcept;

}  // namespace heddle
