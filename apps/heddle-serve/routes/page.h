#pragma once

#include <optional>
#include <string>

#include <boost/asio/awaitable.hpp>

#include "http/message.h"
#include "service/service.h"

namespace heddle::serve {

/// A file of the page at /; nothing: there is none of this path.
[[nodiscard]] std::optional<HttpResponse> page_file(const std::string& path);

/// What the page shows of the engine, as JSON: rows, pages, tokens, adapters.
[[nodiscard]] HttpResponse page_state(Service& service);

/// What the folder of an adapter says of it, and prompts to try it with, as JSON. Throws ApiError
/// where there is no such adapter.
boost::asio::awaitable<HttpResponse> adapter_examples(Service& service, const std::string& name);

}  // namespace heddle::serve
