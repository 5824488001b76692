#pragma once

#include <sstream>
#include <string>
#include <string_view>

#include "core/environment.h"

namespace heddle {

/// Whether the environment holds HEDDLE_LOG_KERNELS=1; read at the first call of the process.
[[nodiscard]] inline bool logs_kernels() {
  static const bool logs = is_one_in_environment("HEDDLE_LOG_KERNELS");
  return logs;
}

/// Writes "heddle: <line>" to stderr, in one piece.
void write_kernel_log(const std::string& line);

/// With HEDDLE_LOG_KERNELS=1 prints which kernels a call of `op` takes, as one line: the choice,
/// and what it was made for, if given.
/// All need operator<<.
///   log_choice("batch_decode", choice, call);
///   // heddle: batch_decode split chunks=4 seqs=8 max_len=4096
template <class... Parts>
void log_choice(std::string_view op, const Parts&... parts) {
  if (!logs_kernels()) [[likely]] {
    return;
  }
  std::ostringstream line;
  line << op;
  ((line << ' ' << parts), ...);
  write_kernel_log(line.str());
}

}  // namespace heddle
