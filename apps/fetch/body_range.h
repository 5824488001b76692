#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>

#include "fetch/source.h"
#include "fetch/web_get.h"

namespace heddle::fetch {

/// Reads a file of `size` bytes from byte `from` on, by Range; from its start where the server
/// gives it whole. `check` throws where the answer is not what was asked for, before its first
/// byte is handed on. `what` names the file in errors.
void read_body(WebRequest request, const std::string& what, int64_t size, int64_t from,
               const OnBytes& on_bytes, const std::stop_token& stop,
               const std::function<void(const WebAnswer&)>& check);

}  // namespace heddle::fetch
