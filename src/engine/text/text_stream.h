#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/utf8.h"

namespace heddle {

/// Turns the bytes of one answer's tokens into text that will not be taken back: incomplete
/// characters and what may become a stop string are held until it is clear what they are.
class TextStream {
 public:
  /// `keeps_stop`: the text ends behind the stop string, not before it.
  explicit TextStream(std::vector<std::string> stop, bool keeps_stop = false);

  /// Adds the bytes of a token; returns the text that has become final. Nothing comes after
  /// `stopped()`. Where `searches` is false the text so far holds no stop string.
  std::string push(std::string_view bytes, bool searches = true);
  /// No more bytes follow: the rest of the text.
  std::string finish();
  /// Whether a stop string was met, where the text ends.
  [[nodiscard]] bool stopped() const { return stopped_; }
  /// The stop string that was met; empty: none.
  [[nodiscard]] const std::string& met() const { return met_; }

 private:
  /// A stop string and how much of its beginning the text ends with (Knuth, Morris and Pratt): a
  /// byte takes the same time, however long the stop strings are.
  struct Stop {
    std::string text;
    std::vector<uint32_t> borders;  // [i]: longest beginning that the first i + 1 bytes end with
    size_t num_met = 0;

    /// Whether the text ends with the whole of it.
    bool push(char byte);
  };

  std::string take_final(bool at_end);

  std::vector<Stop> stops_;
  size_t num_searched_ = 0;  // bytes of held_
  tokenizer::Utf8Stream utf8_;
  std::string held_, met_;
  bool keeps_stop_ = false, stopped_ = false;
};

}  // namespace heddle
