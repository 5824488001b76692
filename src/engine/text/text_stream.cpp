#include "engine/text/text_stream.h"

#include <algorithm>
#include <utility>

namespace heddle {
TextStream::TextStream(std::vector<std::string> stop, bool keeps_stop) : keeps_stop_(keeps_stop) {
  stops_.reserve(stop.size());
  for (std::string& text : stop) {
    Stop& added = stops_.emplace_back(Stop{.text = std::move(text), .borders = {0}});
    for (size_t i = 1; i < added.text.size(); ++i) {
      (void)added.push(added.text[i]);
      added.borders.push_back(static_cast<uint32_t>(added.num_met));
    }
    added.num_met = 0;
  }
}

bool TextStream::Stop::push(char byte) {
  if (num_met == text.size()) num_met = borders.back();
  while (num_met > 0 && text[num_met] != byte) num_met = borders[num_met - 1];
  if (text[num_met] == byte) ++num_met;
  return num_met == text.size();
}

std::string TextStream::push(std::string_view bytes, bool searches) {
  if (stopped_) return {};
  held_ += utf8_.push(bytes);
  if (!searches) {
    for (Stop& stop : stops_) stop.num_met = 0;
    num_searched_ = 0;
    return std::exchange(held_, {});
  }
  return take_final(false);
}

std::string TextStream::finish() {
  if (stopped_) return {};
  held_ += utf8_.finish();
  return take_final(true);
}

std::string TextStream::take_final(bool at_end) {
  size_t first = std::string::npos;
  for (Stop& stop : stops_) {
    for (size_t i = num_searched_; i < held_.size(); ++i) {
      if (!stop.push(held_[i])) continue;
      const size_t place = i + 1 - stop.text.size();
      if (place < first) met_ = stop.text;
      first = std::min(first, place);
      break;
    }
  }
  if (first != std::string::npos) {
    stopped_ = true;
    return held_.substr(0, first + (keeps_stop_ ? met_.size() : 0));
  }
  size_t keep = 0;
  if (!at_end) {
    for (const Stop& stop : stops_) keep = std::max(keep, stop.num_met);
  }
  std::string text = held_.substr(0, held_.size() - keep);
  held_.erase(0, text.size());
  num_searched_ = held_.size();
  return text;
}

}  // namespace heddle
