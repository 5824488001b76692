#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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

/// The tokenizer's part of a model file, as plain data.
struct Vocabulary {
  /// Text by id. Normal tokens are spelled in the byte-level alphabet (a space is "Ġ"), the others
  /// stand for themselves.
  std::vector<std::string> tokens;
  std::vector<TokenType> types;     // one per token, or empty: all normal
  std::vector<std::string> merges;  // "left right", the strongest first
  std::string pre_tokenizer;        // "smollm", "gpt-2", "llama-bpe" or "qwen2"
  int32_t bos = kNoToken;
  int32_t eos = kNoToken;
  bool add_bos = false;  // whether a plain prompt begins with bos; encode leaves that to the caller
};

/// What encode makes of the text of a control token, say "<|im_end|>".
enum class ControlTokens : uint8_t {
  kParse,  // the token: for text from a chat template
  kPlain,  // the characters: for text from outside
};

/// Byte-level BPE: text <-> token ids, equal to the `tokenizers` package on the same vocabulary.
/// Immutable: one tokenizer may serve any number of threads.
class Tokenizer {
 public:
  /// Throws heddle::Error where the vocabulary contradicts itself; the message names token or
  /// merge.
  explicit Tokenizer(Vocabulary vocabulary);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  /// Ids of `text`. In order: bytes that are no UTF-8 become U+FFFD (see utf8.h); user-defined and,
  /// with kParse, control tokens are cut out, the leftmost first, of those the longest; the rest is
  /// split by the pre-tokenizer and merged. A byte that the vocabulary has no token for is left
  /// out. Adds neither bos nor eos.
  [[nodiscard]] std::vector<int32_t> encode(std::string_view text, ControlTokens control) const;

  /// The bytes of the tokens, one after the other; maybe not UTF-8 where ids end inside a
  /// character. Control tokens give their text. An id outside the vocabulary throws.
  [[nodiscard]] std::string decode(std::span<const int32_t> ids) const;
  [[nodiscard]] std::string_view token_bytes(int32_t id) const;

  /// The id of the token with these bytes, or kNoToken: "<|im_end|>", " the". Of several a control
  /// token comes first.
  [[nodiscard]] int32_t find(std::string_view bytes) const;
  [[nodiscard]] bool is_control(int32_t id) const;

  [[nodiscard]] int32_t vocab_size() const;
  [[nodiscard]] int32_t bos() const;  // kNoToken: none
  [[nodiscard]] int32_t eos() const;  // kNoToken: none
  [[nodiscard]] bool add_bos() const;

 private:
  struct State;
  std::unique_ptr<const State> state_;
};

}  // namespace heddle::tokenizer
