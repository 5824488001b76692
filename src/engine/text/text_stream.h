#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/utf8.h"

namespace heddle {

/// Turns the bytes of one answer's tokens into text that will not be taken back: incomplete
/// characters and what may become a stop string are held until it is clear what they are.
///
/// Stop strings are looked for in the shown text, and in the text with what is hidden: so they
/// match special tokens, whole or in part, also where those have no text in the answer. Takes time
/// in proportion to the bytes of the text times the number of stop strings.
class TextStream {
 public:
  /// `keeps_stop`: the text ends after the stop string, not before it.
  explicit TextStream(const std::vector<std::string>& stop, bool keeps_stop = false);

  /// Adds the bytes of a token; returns the text that has become final. Nothing comes after
  /// `stopped()`. Where `searches` is false the text so far holds no stop string.
  std::string push(std::string_view bytes, bool searches = true);
  /// `push` of a token that the answer does not show: a stop string may match it.
  std::string push_hidden(std::string_view text, bool searches = true);
  /// No more bytes follow: the rest of the text.
  std::string finish();
  /// Whether a stop string was met, where the text ends.
  [[nodiscard]] bool stopped() const { return stopped_; }
  /// The stop string that was met; empty: none.
  [[nodiscard]] const std::string& met() const { return met_; }

 private:
  /// A stop string, and how long a beginning of it the text ends with: the search of Knuth, Morris
  /// and Pratt, which looks at each byte of the text once.
  struct Stop {
    explicit Stop(std::string stop);
    /// How many bytes of `more` follow the text when it first ends with the stop string; 0: never.
    size_t first_end(size_t& matched, std::string_view more) const;

    std::string text;
    std::vector<uint32_t> border;  // [text.size()] of its first n + 1 bytes: the longest proper
                                   // beginning that is also their end
    size_t matched = 0;            // of the text with what is hidden
    size_t matched_shown = 0;      // of the shown text; kept once something is hidden
  };

  std::string take(std::string_view text, bool is_hidden, bool searches);
  bool find_stop(std::string_view text, bool is_hidden, size_t begin, size_t& shown_end);
  size_t num_shown(size_t end) const;
  std::string shown_text(size_t end) const;
  size_t num_kept() const;

  std::vector<Stop> stop_;
  tokenizer::Utf8Stream utf8_;
  std::string held_, met_;
  std::vector<bool> is_hidden_;  // [held_.size()]
  bool keeps_stop_ = false, stopped_ = false, has_hidden_ = false;
};

}  // namespace heddle
