#pragma once

#include <string>
#include <string_view>

#include "http/message.h"

namespace heddle::serve {

inline constexpr const char* kRequestIdHeader = "X-Request-Id";

/// The request's X-Request-Id, if it is 1 to 128 visible characters of ASCII; else a new id.
[[nodiscard]] std::string request_id_of(const HttpRequest& head);

/// The trace that a request is part of, in hexadecimal digits; empty: none.
struct TraceParent {
  std::string trace_id{};   // 32 digits
  std::string parent_id{};  // 16 digits, of the span that sent it
};

/// That of a header `traceparent` of W3C's Trace Context. One that is malformed is none, as the
/// standard has it.
[[nodiscard]] TraceParent trace_parent_of(std::string_view header);

}  // namespace heddle::serve
