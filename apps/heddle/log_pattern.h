#pragma once

#include <string>

namespace heddle::app {

/// Sets the pattern of log lines, as spdlog has it, where %* is the text as a terminal may show it:
/// control characters, which names in files may hold, appear as in `shown`, and what goes past
/// 8 KiB as "...".
void set_log_pattern(const std::string& pattern);

}  // namespace heddle::app
