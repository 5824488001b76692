#include "generate/progress.h"

#include <cstdio>
#include <string>
#include <unistd.h>

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

Progress::Progress(bool is_enabled, std::optional<int64_t> num_rows)
    : is_enabled_(is_enabled), is_terminal_(isatty(STDERR_FILENO) != 0), num_rows_(num_rows) {
  // Text that streams to the same terminal would be torn apart by the line.
  if (is_terminal_ && isatty(STDOUT_FILENO) != 0) is_enabled_ = false;
  interval_ = is_terminal_ ? std::chrono::milliseconds(200) : std::chrono::seconds(60);
  begin_ = Clock::now();
  next_ = begin_ + interval_;
}

void Progress::show(int64_t num_done, const EngineStats& stats) {
  const Clock::time_point now = Clock::now();
  if (!is_enabled_ || now < next_) return;
  next_ = now + interval_;
  const double elapsed = std::chrono::duration<double>(now - begin_).count();
  std::string text = std::to_string(num_done);
  if (num_rows_) text += " of " + std::to_string(*num_rows_);
  char rate[48];
  const double busy = stats.prefill_seconds + stats.decode_seconds;
  std::snprintf(rate, sizeof rate, " rows, %.0f tokens/s",
                busy > 0 ? static_cast<double>(stats.generated_tokens) / busy : 0.0);
  text += rate;
  if (num_rows_ && num_done > 0) {
    const auto left = static_cast<double>(*num_rows_ - num_done);
    text += ", " + format_time(elapsed * left / static_cast<double>(num_done)) + " left";
  }
  std::fprintf(stderr, is_terminal_ ? "\r\033[K%s" : "heddle: %s\n", text.c_str());
}

void Progress::clear() const {
  if (is_enabled_ && is_terminal_) std::fputs("\r\033[K", stderr);
}

}  // namespace heddle::app
