#pragma once

#include <optional>

#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "http/message.h"

namespace heddle::serve {

using RequestParser = boost::beast::http::request_parser<boost::beast::http::string_body>;

/// Readies it for one request: its head, until the length of its body is limited.
void set_limits(RequestParser& parser);
/// Once the head was read. False: the head says that the body is longer.
[[nodiscard]] bool limit_body(RequestParser& parser, const BodyLimit& limit);

/// An error for a request that no route has seen; `path` is empty where it is not known.
[[nodiscard]] HttpResponse refusal(unsigned status, const std::string& message,
                                   const std::string& path);

/// The head that was read, without the body; HEAD counts as GET. A target that names
/// its host ("http://localhost/health") goes before the header Host.
[[nodiscard]] HttpRequest head_of(const RequestParser& parser);

/// The response to what is no HTTP, or too long; nothing: the client has gone.
[[nodiscard]] std::optional<HttpResponse> refusal_of(const boost::system::error_code& error,
                                                     const BodyLimit& limit,
                                                     const std::string& path);

}  // namespace heddle::serve
