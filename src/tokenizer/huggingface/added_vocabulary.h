#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/core/thread_pool.h"

#include "tokenizer/added_tokens.h"
#include "tokenizer/huggingface/json_node.h"
#include "tokenizer/huggingface/model_vocabulary.h"
#include "tokenizer/huggingface/normalizer.h"
#include "tokenizer/tokenizer_json.h"

namespace heddle::tokenizer {

/// The "added_tokens" of a tokenizer.json: tokens that are cut out of a text before the model sees
/// it.
class AddedVocabulary {
 public:
  struct Token {
    std::string content;  // as the text has it
    std::string decoded;  // as decoders see it: the normalised content where that is looked for
    int32_t id;
    bool special, normalized, lstrip, rstrip, single_word;
  };

  /// Ids are those of the model's vocabulary, and after it for the tokens it lacks, in the file's
  /// order; the file's own ids are not looked at, as in the tokenizers package. `extra` come last.
  AddedVocabulary(const JsonNode& node, std::span<const ExtraToken> extra,
                  const ModelVocabulary& vocabulary, const Normalizer& normalizer);

  /// When a token is looked for: in the text as it is, or in the normalised one.
  enum class Phase : uint8_t { kRaw, kNormalized };

  /// Cuts `text` up, in order: text(begin, end) for what is left, token(id) for tokens. By kPlain
  /// the text of special tokens is left.
  void split(std::string_view text, Phase phase, ControlTokens control,
             FunctionRef<void(size_t, size_t)> left, FunctionRef<void(int32_t)> token) const;

  [[nodiscard]] const std::vector<Token>& tokens() const { return tokens_; }
  [[nodiscard]] bool has_normalized() const;

 private:
  static Token read_token(const JsonNode& node);
  static std::vector<Token> read_tokens(const JsonNode& node, std::span<const ExtraToken> extra,
                                        const ModelVocabulary& vocabulary,
                                        const Normalizer& normalizer);
  static AddedTokens matcher(const std::vector<Token>& tokens, Phase phase);

  std::vector<Token> tokens_;
  AddedTokens raw_, normalized_;  // their ids are indices of tokens_
};

}  // namespace heddle::tokenizer
