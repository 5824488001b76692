#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
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

  /// Of tokens with equal text the first counts; texts that are empty or no UTF-8 never match.
  /// Error(kUnsupported) where the texts have more than 4 MiB in all.
  explicit AddedTokens(std::vector<Token> tokens);

  /// What is cut out of a text of less than 4 GiB, from left to right: at each place the longest
  /// token that begins there. Takes time in proportion to the text, whatever the tokens.
  [[nodiscard]] std::vector<Match> find_all(std::string_view text) const;

 private:
  // A trie of the tokens' texts, read backwards (Aho and Corasick 1975, doi 10.1145/360825.360855).
  // The children of a node lie next to one another, by byte, after those of the nodes before it.
  struct Node {
    uint32_t children = 0;  // the first
    uint32_t suffix = 0;    // the node of its longest suffix that is in the trie
    int32_t token = -1;     // in tokens_: the longest that ends here; -1: none
    uint16_t num_children = 0;
    uint8_t byte = 0;  // that leads here
  };
  static constexpr uint32_t kRoot = 0;

  void build_trie(const std::vector<Token>& tokens);
  [[nodiscard]] uint32_t child_of(uint32_t node, uint8_t byte) const;
  [[nodiscard]] uint32_t next(uint32_t node, uint8_t byte) const;

  struct Known {
    uint32_t size;
    int32_t id;
  };
  std::vector<Known> tokens_;
  std::vector<Node> nodes_;
  std::array<uint32_t, 256> after_root_{};  // kRoot: no token ends with the byte
};

}  // namespace heddle::tokenizer
