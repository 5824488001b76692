#pragma once

#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>

namespace heddle {

enum class ErrorCode : uint8_t { kInvalidArgument, kUnsupported, kOutOfMemory, kCuda };

/// What the library throws, and nothing else. `code()` survives language bindings; `what()` is for
/// people.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& what) : std::runtime_error(what), code_(code) {}
  [[nodiscard]] ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

/// Throws Error(code) whose text is the parts, streamed one after the other.
template <class... Parts>
[[noreturn]] void throw_error(ErrorCode code, const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  throw Error(code, text.str());
}

}  // namespace heddle

/// Throws Error(kInvalidArgument) made of the parts unless `cond` holds; the parts are evaluated
/// only then.
#define HEDDLE_CHECK(cond, ...)                                                  \
  do {                                                                           \
    if (!(cond)) [[unlikely]]                                                    \
      ::heddle::throw_error(::heddle::ErrorCode::kInvalidArgument, __VA_ARGS__); \
  } while (0)
