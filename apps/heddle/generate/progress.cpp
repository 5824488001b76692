#include "generate/progress.h"

#include <cstdio>

namespace heddle::app {
namespace {

/// "0:42", "12:05" or "3:00:00".
std::string format_time(double seconds) {
  const auto whole = static_cast<long long>(seconds);
  char text[32];
  if (whole < 3600) {
    std::snprintf(text, sizeof text, "%lld:%02lld", whole / 60, whole % 60);
  } else {
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60,
                  whole % 60);
  }
  return text;
}

}  // namespace

Progress::Progress(bool is_terminal, std::optional<int64_t> num_rows, Clock::time_point begin)
    : is_terminal_(is_terminal), num_rows_(num_rows), begin_(begin) {
  interval_ = is_terminal ? std::chrono::milliseconds(200) : std::chrono::seconds(60);
  next_ = begin_ + interval_;
}

std::string Progress::update(int64_t num_done, const EngineStats& stats, Clock::time_point now) {
  if (now < next_) return "";
  next_ = now + interval_;
  std::string text = std::to_string(num_done);
  if (num_rows_) text += " of " + std::to_string(*num_rows_);
  const double busy = stats.prefill_seconds + stats.decode_seconds;
  char rate[48];
  std::snprintf(rate, sizeof rate, " rows, %.0f tokens/s",
                busy > 0 ? static_cast<double>(stats.generated_tokens) / busy : 0.0);
  text += rate;
  if (num_rows_ && num_done > 0) {
    const double elapsed = std::chrono::duration<double>(now - begin_).count();
    const auto left = static_cast<double>(*num_rows_ - num_done);
    text += ", " + format_time(elapsed * left / static_cast<double>(num_done)) + " left";
  }
  return is_terminal_ ? end() + text : "heddle: " + text + "\n";
}

}  // namespace heddle::app
