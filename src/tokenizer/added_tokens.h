#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace heddle::tokenizer {

/// Tokens that stand for literal text and are looked for before anything else is done to a text.
class AddedTokens {
 public:
  struct Token {
    std::string_view text;
    int32_t id;
  };
  struct Match {
    size_t begin, end;  // in the text
    int32_t id;
  };

  /// Of tokens with equal text the first counts; texts that are empty or no UTF-8 never match. The
  /// texts must outlive this object.
  explicit AddedTokens(std::vector<Token> tokens);

  /// The token that begins leftmost at or after `from`; of those that begin there, the longest.
  [[nodiscard]] std::optional<Match> find(std::string_view text, size_t from) const;

 private:
  [[nodiscard]] const Token* longest_prefix_of(std::string_view text) const;

  std::vector<Token> tokens_;  // by text
  std::array<bool, 256> begins_token_{};
};

}  // namespace heddle::tokenizer
