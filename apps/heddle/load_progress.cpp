#include "load_progress.h"

#include <algorithm>
#include <cstdio>

namespace heddle::app {

std::string LoadProgress::update(int64_t done_bytes, int64_t total_bytes, Clock::time_point now) {
  if (now < next_ || total_bytes <= 0) return "";
  next_ = now + std::chrono::milliseconds(100);
  is_shown_ = true;
  constexpr int kWidth = 30;
  const double share =
      std::clamp(static_cast<double>(done_bytes) / static_cast<double>(total_bytes), 0.0, 1.0);
  const auto filled = static_cast<size_t>(share * kWidth);
  char text[64];
  std::snprintf(text, sizeof text, "] %.0f %% of %.1f GB", 100.0 * share,
                static_cast<double>(total_bytes) / 1e9);
  return end() + (std::string(what_) + " [" + std::string(filled, '#')) +
         std::string(kWidth - filled, ' ') + text;
}

LoadLine::~LoadLine() { std::fputs(progress_.end(), stderr); }

void LoadLine::update(int64_t done_bytes, int64_t total_bytes) {
  const LoadProgress::Clock::time_point now = LoadProgress::Clock::now();
  std::fputs(progress_.update(done_bytes, total_bytes, now).c_str(), stderr);
}

}  // namespace heddle::app
