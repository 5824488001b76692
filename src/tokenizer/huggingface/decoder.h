#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tokenizer/decode_state.h"
#include "tokenizer/huggingface/json_node.h"
#include "tokenizer/huggingface/pattern.h"

namespace heddle::tokenizer {

/// The decoder of a tokenizer.json: text of tokens.
class TokenDecoder {
 public:
  /// `node`: the file's "decoder", maybe null. Error(kUnsupported) about an order of parts in which
  /// text could not be streamed.
  explicit TokenDecoder(const JsonNode& node);

  /// Appends what is certain of the text after one more token. All that push and finish append,
  /// put together and with bytes that are no UTF-8 replaced (utf8.h), is the text of the tokens.
  void push(std::string_view token, DecodeState& state, std::string& text) const;
  void finish(DecodeState& state, std::string& text) const;

  /// What the token stands for within a text.
  [[nodiscard]] std::string bytes_of(std::string_view token) const;

 private:
  struct Replace {
    Pattern pattern;
    std::string content;
  };
  struct Strip {
    std::string content;  // a character
    int64_t start, stop;
  };
  struct Metaspace {
    Pattern replacement;
    bool drops_first;  // those of the first token
  };
  using Step = std::variant<Replace, Strip, Metaspace>;

  void read_part(const JsonNode& node);
  void add_step(const JsonNode& node, Step step);
  static Strip read_strip(const JsonNode& node);
  static std::string apply(const std::vector<Step>& steps, std::string_view token, bool is_first);
  void end_byte_run(DecodeState& state, std::string& text) const;
  void emit(std::string_view part, DecodeState& state, std::string& text) const;

  // In this order: what is done to each token, bytes are joined to characters, what is done to each
  // of the parts, and what is done to the text.
  bool separates_ = false;  // tokens by spaces, where the file has no decoder
  std::vector<Step> token_steps_;
  bool joins_bytes_ = false;
  std::vector<Step> part_steps_;
  bool fuses_ = false;
  bool spells_bytes_ = false;      // ByteLevel, which stands alone
  std::vector<Strip> text_strip_;  // none or one
};

}  // namespace heddle::tokenizer
