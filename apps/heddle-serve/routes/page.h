#pragma once

#include <optional>

#include "http/message.h"
#include "service/service.h"

namespace heddle::serve {

/// A file of the page at /; nothing: there is none of this path.
[[nodiscard]] std::optional<HttpResponse> page_file(const std::string& path);

/// What the page shows of the engine, as JSON: rows, pages, tokens, adapters.
[[nodiscard]] HttpResponse page_state(Service& service);

}  // namespace heddle::serve
