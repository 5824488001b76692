#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "heddle/engine/engine.h"

namespace heddle::app {

/// How far a run is, as text for standard error: on a terminal a line that is written over five
/// times a second, else a line a minute.
class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  /// num_rows: rows of the run, nothing where that is not known.
  Progress(bool is_terminal, std::optional<int64_t> num_rows, Clock::time_point begin);

  /// What is to be written now; empty: nothing yet.
  [[nodiscard]] std::string update(int64_t num_done, const EngineStats& stats,
                                   Clock::time_point now);
  /// What removes the line from a terminal.
  [[nodiscard]] const char* end() const { return is_terminal_ ? "\r\033[K" : ""; }

 private:
  bool is_terminal_;
  std::optional<int64_t> num_rows_;
  Clock::duration interval_;
  Clock::time_point begin_, next_;
};

}  // namespace heddle::app
