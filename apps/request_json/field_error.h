#pragma once

#include <string>
#include <utility>

#include "heddle/core/error.h"

namespace heddle::app {

/// What is wrong with a field of a request, with the field's name for programs:
/// "tools[0].function".
class FieldError : public Error {
 public:
  FieldError(std::string field, const std::string& what,
             ErrorCode code = ErrorCode::kInvalidArgument)
      : Error(code, what), field_(std::move(field)) {}
  [[nodiscard]] const std::string& field() const noexcept { return field_; }

 private:
  std::string field_;
};

/// Throws FieldError, whose text is the field's name and the parts.
template <class... Parts>
[[noreturn]] void refuse_field(const std::string& field, const Parts&... parts) {
  std::ostringstream text;
  text << field;
  (text << ... << parts);
  throw FieldError(field, text.str());
}

}  // namespace heddle::app
