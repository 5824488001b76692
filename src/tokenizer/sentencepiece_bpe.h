#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace heddle::tokenizer {

/// Whether a text begins with a space that is not there: " Hello" for "Hello".
enum class SpacePrefix : uint8_t { kNone, kAdd };

/// BPE by scores, as SentencePiece has it and GGUF's tokenizer.ggml.model = "llama" means it. A
/// space is spelled U+2581 "▁"; a text starts as its characters; as long as two neighbours joined
/// are a token, those whose token has the highest score are joined, the leftmost first among equal
/// scores. A character that ends up as no token becomes its bytes, tokens spelled "<0x0A>", or
/// the unknown token, one for a run of such characters; without that it is left out. Control,
/// unknown and byte tokens are never made of their spelling.
///
/// Immutable: one encoder may serve any number of threads.
class SentencePieceBpe {
 public:
  /// tokens, scores, types [vocab_size]; `unknown` is a token or kNoToken. Of equal tokens the
  /// first counts. Error where the three differ in length or a score is NaN. Takes
  /// O(n log n) for a vocabulary of n bytes.
  SentencePieceBpe(std::span<const std::string> tokens, std::span<const float> scores,
                   std::span<const TokenType> types, int32_t unknown);

  /// Appends the ids of `text`, UTF-8 of less than 512 MiB with spaces as they are; an empty text
  /// has none, whatever the prefix. A text of n bytes takes O(n log n), and memory in proportion.
  /// Where no token has a space after another character, as in most vocabularies, each word is
  /// joined by itself, which gives the same and is faster.
  void encode(std::string_view text, SpacePrefix prefix, std::vector<int32_t>& ids) const;

 private:
  // What text may be while it is joined: the tokens, and after them the characters that occur in
  // tokens without being one.
  using Piece = int32_t;
  static constexpr Piece kNoPiece = -1;
  struct Join {
    Piece right, joined;
    uint32_t rank;  // of the score of `joined`; 0: the highest
  };
  struct Symbol;

  void add_joins(std::span<const std::string_view> pieces, std::span<const uint32_t> ranks);
  [[nodiscard]] const Join* find_join(Piece left, Piece right) const;
  void add_candidate(int32_t position, std::vector<Symbol>& symbols,
                     std::vector<uint64_t>& heap) const;
  void split(std::string_view text, std::vector<Symbol>& symbols) const;
  void join_all(std::vector<Symbol>& symbols, std::vector<uint64_t>& heap) const;
  void append_bytes(std::string_view character, bool follows_unknown,
                    std::vector<int32_t>& ids) const;

  int32_t vocab_size_;
  int32_t unknown_;
  bool spaces_begin_words_ = true;        // no token has a space after another character
  std::array<int32_t, 256> byte_tokens_;  // kNoToken: none
  std::unordered_map<uint32_t, Piece> piece_of_character_;  // by its bytes, the first one highest
  std::vector<Join> joins_;                                 // by left piece, then by right piece
  std::vector<uint32_t> join_begin_;  // [number of pieces + 1]: where those of a left piece begin
};

/// The bytes that a token of such a vocabulary stands for: "▁the" is " the", the byte token <0x0A>
/// a line feed. Control, unknown and unused tokens stand for their text.
[[nodiscard]] std::string bytes_of_sentencepiece(std::string_view token, TokenType type);

}  // namespace heddle::tokenizer
