#pragma once

#include <string>
#include <vector>

#include "options.h"

namespace heddle::serve {

/// Where others than meant may use the server, one sentence each: at an address that other machines
/// reach and without keys, and with files of keys that other users of this machine may read.
[[nodiscard]] std::vector<std::string> access_warnings(const app::ServeOptions& options);

}  // namespace heddle::serve
