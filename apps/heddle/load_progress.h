#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace heddle::app {

/// How far the loading of a model is, or `what` else, as a line of a terminal that is written over
/// ten times a second; nothing in the first second.
class LoadProgress {
 public:
  using Clock = std::chrono::steady_clock;

  LoadProgress(Clock::time_point begin, const char* what)
      : what_(what), next_(begin + std::chrono::seconds(1)) {}

  /// What is to be written now; empty: nothing yet.
  [[nodiscard]] std::string update(int64_t done_bytes, int64_t total_bytes, Clock::time_point now);
  /// What removes the line from the terminal; empty where there is none.
  [[nodiscard]] const char* end() const { return is_shown_ ? "\r\033[K" : ""; }

 private:
  const char* what_;
  Clock::time_point next_;
  bool is_shown_ = false;
};

/// That line on standard error, which is gone when this ends, however it ends.
class LoadLine {
 public:
  explicit LoadLine(const char* what) : progress_(LoadProgress::Clock::now(), what) {}
  LoadLine(const LoadLine&) = delete;
  LoadLine& operator=(const LoadLine&) = delete;
  ~LoadLine();
  void update(int64_t done_bytes, int64_t total_bytes);

 private:
  LoadProgress progress_;
};

}  // namespace heddle::app
