#pragma once

#include <map>
#include <span>
#include <string>

#include "limits/rate_limits.h"

namespace heddle::serve {

/// The file of --limits: TOML with `requests-per-minute`, `tokens-per-minute`, `max-rows`,
/// `adapters` and `priority`. What stands before the first section holds for each of `names`, the
/// holders of keys of --api-key-file, unless the section of that name says otherwise; `others` may
/// have sections, too. Throws Error, with file and line, where something is wrong.
[[nodiscard]] std::map<std::string, KeyLimit> read_limits(const std::string& path,
                                                          std::span<const std::string> names,
                                                          std::span<const std::string> others);

}  // namespace heddle::serve
