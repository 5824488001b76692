#pragma once

#include <algorithm>
#include <string_view>

namespace heddle::model {

/// Calls take(word) for the words of a text, which single spaces separate.
template <class Take>
void for_words(std::string_view text, const Take& take) {
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    take(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

/// Whether it is one of the words of a text.
[[nodiscard]] inline bool is_word_of(std::string_view text, std::string_view word) {
  bool found = false;
  for_words(text, [&](std::string_view other) { found |= other == word; });
  return found;
}

}  // namespace heddle::model
