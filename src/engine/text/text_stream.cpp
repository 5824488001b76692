#include "engine/text/text_stream.h"

#include <algorithm>
#include <utility>

namespace heddle {

TextStream::Stop::Stop(std::string stop) : text(std::move(stop)), border(text.size()) {
  size_t length = 0;
  for (size_t i = 1; i < text.size(); ++i) {
    while (length > 0 && text[length] != text[i]) length = border[length - 1];
    if (text[length] == text[i]) ++length;
    border[i] = static_cast<uint32_t>(length);
  }
}

size_t TextStream::Stop::first_end(size_t& matched_bytes, std::string_view more) const {
  for (size_t i = 0; i < more.size(); ++i) {
    while (matched_bytes > 0 && text[matched_bytes] != more[i]) {
      matched_bytes = border[matched_bytes - 1];
    }
    if (text[matched_bytes] == more[i]) ++matched_bytes;
    if (matched_bytes == text.size()) return i + 1;
  }
  return 0;
}

TextStream::TextStream(const std::vector<std::string>& stop, bool keeps_stop)
    : keeps_stop_(keeps_stop) {
  for (const std::string& text : stop) stop_.emplace_back(text);
}

std::string TextStream::push(std::string_view bytes, bool searches) {
  if (stopped_) return {};
  return take(utf8_.push(bytes), false, searches);
}

std::string TextStream::push_hidden(std::string_view text, bool searches) {
  if (stopped_) return {};
  // What may be pending of a character stays so: its rest comes with a later token.
  return take(text, true, searches);
}

std::string TextStream::finish() {
  if (stopped_) return {};
  std::string text = take(utf8_.finish(), false, true);
  if (!stopped_) text += shown_text(held_.size());
  held_.clear();
  is_hidden_.clear();
  return text;
}

/// Adds whole characters, and returns what has become final.
std::string TextStream::take(std::string_view text, bool is_hidden, bool searches) {
  if (stop_.empty() || !searches) return is_hidden ? std::string() : std::string(text);
  if (is_hidden && !std::exchange(has_hidden_, true)) {
    for (Stop& stop : stop_) stop.matched_shown = stop.matched;
  }
  const size_t begin = held_.size();
  held_ += text;
  is_hidden_.resize(held_.size(), is_hidden);
  size_t shown_end = 0;
  if (find_stop(text, is_hidden, begin, shown_end)) {
    stopped_ = true;
    std::string shown = shown_text(held_.size()).substr(0, shown_end);
    return keeps_stop_ ? shown + met_ : shown;
  }
  const size_t final_end = held_.size() - num_kept();
  std::string shown = shown_text(final_end);
  held_.erase(0, final_end);
  is_hidden_.erase(is_hidden_.begin(), is_hidden_.begin() + static_cast<int64_t>(final_end));
  return shown;
}

/// Searches `text`, which is held_ from `begin` on. Of the stop strings that end in it the
/// one that begins first is met: shown_end is where, in bytes of what held_ shows.
bool TextStream::find_stop(std::string_view text, bool is_hidden, size_t begin, size_t& shown_end) {
  shown_end = std::string::npos;
  const size_t shown_begin = has_hidden_ ? num_shown(begin) : begin;
  for (Stop& stop : stop_) {
    const size_t in_all = stop.first_end(stop.matched, text);
    size_t first = in_all == 0 ? std::string::npos : num_shown(begin + in_all - stop.text.size());
    if (has_hidden_ && !is_hidden) {
      const size_t in_shown = stop.first_end(stop.matched_shown, text);
      if (in_shown > 0) first = std::min(first, shown_begin + in_shown - stop.text.size());
    }
    if (first >= shown_end) continue;
    shown_end = first;
    met_ = stop.text;
  }
  return shown_end != std::string::npos;
}

/// Of the first `end` bytes of held_, how many are shown.
size_t TextStream::num_shown(size_t end) const {
  return end - static_cast<size_t>(std::count(
                   is_hidden_.begin(), is_hidden_.begin() + static_cast<int64_t>(end), true));
}

std::string TextStream::shown_text(size_t end) const {
  if (!has_hidden_) return held_.substr(0, end);
  std::string shown;
  for (size_t i = 0; i < end; ++i) {
    if (!is_hidden_[i]) shown += held_[i];
  }
  return shown;
}

/// How many of the last bytes of held_ may become part of a stop string.
size_t TextStream::num_kept() const {
  size_t num_all = 0, num_of_shown = 0;
  for (const Stop& stop : stop_) {
    num_all = std::max(num_all, stop.matched);
    if (has_hidden_) num_of_shown = std::max(num_of_shown, stop.matched_shown);
  }
  size_t begin = held_.size();
  for (; num_of_shown > 0; --begin) {
    if (!is_hidden_[begin - 1]) --num_of_shown;
  }
  return std::max(num_all, held_.size() - begin);
}

}  // namespace heddle
