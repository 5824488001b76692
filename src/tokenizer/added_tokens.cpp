#include "tokenizer/added_tokens.h"

#include <algorithm>

#include "tokenizer/utf8.h"

namespace heddle::tokenizer {

AddedTokens::AddedTokens(std::vector<Token> tokens) : tokens_(std::move(tokens)) {
  std::erase_if(tokens_, [](const Token& token) {
    return token.text.empty() || replace_invalid_utf8(token.text) != token.text;
  });
  std::stable_sort(tokens_.begin(), tokens_.end(),
                   [](const Token& a, const Token& b) { return a.text < b.text; });
  const auto equal = [](const Token& a, const Token& b) { return a.text == b.text; };
  tokens_.erase(std::unique(tokens_.begin(), tokens_.end(), equal), tokens_.end());
  for (const Token& token : tokens_) begins_token_[static_cast<uint8_t>(token.text[0])] = true;
}

/// Walks down the sorted texts byte by byte: those that agree so far are neighbours, and one that
/// ends here is their first.
const AddedTokens::Token* AddedTokens::longest_prefix_of(std::string_view text) const {
  const Token* longest = nullptr;
  auto begin = tokens_.begin(), end = tokens_.end();
  for (size_t depth = 0; begin != end; ++depth) {
    if (begin->text.size() == depth) longest = &*begin++;
    if (depth == text.size()) break;
    const auto byte = static_cast<uint8_t>(text[depth]);
    const auto byte_of = [depth](const Token& token) {
      return static_cast<uint8_t>(token.text[depth]);
    };
    begin = std::partition_point(begin, end, [&](const Token& t) { return byte_of(t) < byte; });
    end = std::partition_point(begin, end, [&](const Token& t) { return byte_of(t) == byte; });
  }
  return longest;
}

std::optional<AddedTokens::Match> AddedTokens::find(std::string_view text, size_t from) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!begins_token_[static_cast<uint8_t>(text[begin])]) continue;
    if (const Token* const token = longest_prefix_of(text.substr(begin))) {
      return Match{begin, begin + token->text.size(), token->id};
    }
  }
  return std::nullopt;
}

}  // namespace heddle::tokenizer
