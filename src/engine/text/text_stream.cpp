#include "engine/text/text_stream.h"

#include <algorithm>
#include <utility>

namespace heddle {
namespace {

/// Length of the longest end of `text` that is a beginning of `stop`, shorter than stop itself.
size_t held_back(std::string_view text, std::string_view stop) {
  for (size_t n = std::min(text.size(), stop.size() - 1); n > 0; --n) {
    if (text.substr(text.size() - n) == stop.substr(0, n)) return n;
  }
  return 0;
}

}  // namespace

std::string TextStream::push(std::string_view bytes, bool searches) {
  if (stopped_) return {};
  held_ += utf8_.push(bytes);
  if (!searches) return std::exchange(held_, {});
  return take_final(false);
}

std::string TextStream::finish() {
  if (stopped_) return {};
  held_ += utf8_.finish();
  return take_final(true);
}

std::string TextStream::take_final(bool at_end) {
  size_t first = std::string::npos;
  for (const std::string& stop : stop_) {
    const size_t place = held_.find(stop);
    if (place >= first) continue;
    first = place;
    met_ = stop;
  }
  if (first != std::string::npos) {
    stopped_ = true;
    return held_.substr(0, first + (keeps_stop_ ? met_.size() : 0));
  }
  size_t keep = 0;
  if (!at_end) {
    for (const std::string& stop : stop_) keep = std::max(keep, held_back(held_, stop));
  }
  std::string text = held_.substr(0, held_.size() - keep);
  held_.erase(0, text.size());
  return text;
}

}  // namespace heddle
