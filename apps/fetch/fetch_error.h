#pragma once

#include <cstdint>
#include <sstream>
#include <string>

#include "heddle/core/error.h"

namespace heddle::fetch {

/// Why nothing was fetched, in the words of those who asked.
enum class FetchFault : uint8_t {
  kRefused,      // the name is none, or not one that may be fetched
  kNotFound,     // there is no such repository, revision or file
  kForbidden,    // the token, or the lack of one, does not open it
  kUnavailable,  // no answer, or not now: asked again it may come
  kWrong,        // what came is not what was announced
  kFull,         // there is no room for it
};

/// A fetch that has failed. what() is one sentence, without tokens.
class FetchError : public Error {
 public:
  FetchError(FetchFault fault, const std::string& what)
      : Error(ErrorCode::kInvalidArgument, what), fault_(fault) {}
  [[nodiscard]] FetchFault fault() const noexcept { return fault_; }

 private:
  FetchFault fault_;
};

/// Throws FetchError whose text is the parts, streamed one after the other.
template <class... Parts>
[[noreturn]] void fail(FetchFault fault, const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  throw FetchError(fault, text.str());
}

}  // namespace heddle::fetch
