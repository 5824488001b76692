#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/decode_state.h"

namespace heddle::tokenizer {

inline constexpr int32_t kNoToken = -1;

/// What GGUF's tokenizer.ggml.token_type says of a token; the numbers are the file's.
enum class TokenType : int32_t {
  kNormal = 1,
  kUnknown = 2,      // treated as kControl
  kControl = 3,      // a mark such as the end of a turn: never made from plain text
  kUserDefined = 4,  // literal text that is matched before all else
  kUnused = 5,
  kByte = 6,
};

/// What GGUF's tokenizer.ggml.model says, and how words are made into tokens.
enum class VocabularyKind : uint8_t {
  kByteLevelBpe,      // "gpt2": by merges
  kSentencePieceBpe,  // "llama": by scores, spaces are "▁" and unknown characters byte tokens
};

/// The tokenizer's part of a GGUF file, as plain data.
struct Vocabulary {
  VocabularyKind kind = VocabularyKind::kByteLevelBpe;
  /// Text by id. Normal tokens of kByteLevelBpe are spelled in the byte-level alphabet (a space is
  /// "Ġ"), those of kSentencePieceBpe with "▁" for a space and "<0x0A>" for the byte tokens; the
  /// others stand for themselves.
  std::vector<std::string> tokens;
  std::vector<TokenType> types;     // one per token, or empty: all normal
  std::vector<std::string> merges;  // "left right", the strongest first
  std::string pre_tokenizer;        // of kByteLevelBpe: "gpt-2", "llama-bpe" and so on
  std::vector<float> scores;        // one per token; of kSentencePieceBpe alone
  /// Of kSentencePieceBpe: whether a text, and what follows a control or user-defined token, begins
  /// with one space more, which decode takes away from a text again.
  bool add_space_prefix = true;
  int32_t bos = kNoToken;
  int32_t eos = kNoToken;
  bool add_bos = false;  // whether a plain prompt begins with bos: see Tokenizer::begin_tokens
};

/// What encode makes of the text of a control token, say "<|im_end|>".
enum class ControlTokens : uint8_t {
  kParse,  // the token: for text from a chat template
  kPlain,  // the characters: for text from outside
};

/// Text <-> token ids, equal to the `tokenizers` package on the same vocabulary. Made of a GGUF
/// file's Vocabulary, or of a tokenizer.json by read_tokenizer_json() (tokenizer_json.h).
/// Immutable: one tokenizer may serve any number of threads.
class Tokenizer {
 public:
  /// Throws heddle::Error where the vocabulary contradicts itself; the message names token or
  /// merge.
  explicit Tokenizer(Vocabulary vocabulary);
  struct State;
  explicit Tokenizer(std::unique_ptr<const State> state);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  /// Ids of `text`. In order: bytes that are no UTF-8 become U+FFFD (see utf8.h); user-defined and,
  /// with kParse, control tokens are cut out, the leftmost first, of those the longest; the rest is
  /// normalised, split by the pre-tokenizer and made into tokens. What the vocabulary has no token
  /// for becomes the unknown token, if there is one, or is left out. Adds neither begin_tokens()
  /// nor end_tokens().
  [[nodiscard]] std::vector<int32_t> encode(std::string_view text, ControlTokens control) const;

  /// The text of the ids, as bytes: maybe not UTF-8 where ids end inside a character; with those
  /// bytes replaced (utf8.h), what the tokenizers package decodes without leaving out special
  /// tokens. Control tokens give their text. An id outside the vocabulary throws.
  [[nodiscard]] std::string decode(std::span<const int32_t> ids) const;
  /// The same by token: appends what is certain of the text after one more id, and the rest at the
  /// end, after which the state is as new.
  void decode_next(int32_t id, DecodeState& state, std::string& bytes) const;
  void decode_end(DecodeState& state, std::string& bytes) const;
  /// What the token stands for within a text; at its beginning some drop a space. Empty for an id
  /// that no token has.
  [[nodiscard]] std::string_view token_bytes(int32_t id) const;

  /// The id of the token with these bytes, or kNoToken: "<|im_end|>", " the". Of several a control
  /// token comes first.
  [[nodiscard]] int32_t find(std::string_view bytes) const;
  [[nodiscard]] bool is_control(int32_t id) const;

  [[nodiscard]] int32_t vocab_size() const;
  [[nodiscard]] int32_t bos() const;  // kNoToken: none
  [[nodiscard]] int32_t eos() const;  // kNoToken: none
  /// What a plain prompt begins and ends with; a rendered chat has them in its text.
  [[nodiscard]] std::span<const int32_t> begin_tokens() const;
  [[nodiscard]] std::span<const int32_t> end_tokens() const;

 private:
  std::unique_ptr<const State> state_;
};

}  // namespace heddle::tokenizer
