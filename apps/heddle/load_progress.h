#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace heddle::app {

/// How far the loading of a model is, as a line of a terminal that is written over ten times a
/// second; nothing in the first second.
class LoadProgress {
 public:
  using Clock = std::chrono::steady_clock;

  explicit LoadProgress(Clock::time_point begin) : next_(begin + std::chrono::seconds(1)) {}

  /// What is to be written now; empty: nothing yet.
  [[nodiscard]] std::string update(int64_t done_bytes, int64_t total_bytes, Clock::time_point now);
  /// What removes the line from the terminal; empty where there is none.
  [[nodiscard]] const char* end() const { return is_shown_ ? "\r\033[K" : ""; }

 private:
  Clock::time_point next_;
  bool is_shown_ = false;
};

}  // namespace heddle::app
