#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "heddle/engine/engine.h"

namespace heddle::app {

/// Tells on standard error how far a run is: a line that is written over where that is a terminal of
/// its own, else a line a minute.
class Progress {
 public:
  /// num_rows: rows of the run, nothing where that is not known.
  Progress(bool is_enabled, std::optional<int64_t> num_rows);

  void show(int64_t num_done, const EngineStats& stats);
  /// Removes the line from the terminal.
  void clear() const;

 private:
  using Clock = std::chrono::steady_clock;

  bool is_enabled_, is_terminal_;
  std::optional<int64_t> num_rows_;
  Clock::duration interval_;
  Clock::time_point begin_, next_;
};

}  // namespace heddle::app
