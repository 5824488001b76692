#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tokenizer/huggingface/characters.h"
#include "tokenizer/huggingface/json_node.h"
#include "tokenizer/huggingface/pattern.h"

namespace heddle::tokenizer {

/// What a tokenizer.json does to a text before it is split.
class Normalizer {
 public:
  /// `node`: the file's "normalizer", maybe null.
  explicit Normalizer(const JsonNode& node);

  /// The text as the model knows it. Error(kUnsupported) where that has more than 64 times the
  /// bytes and 64 KiB more.
  [[nodiscard]] std::string apply(std::string_view text) const;
  [[nodiscard]] bool empty() const { return steps_.empty(); }
  /// Whether the first character comes of the text's first one, whatever the text.
  [[nodiscard]] bool keeps_beginning() const;

 private:
  struct Prepend {
    std::string content;
  };
  struct Replace {
    Pattern pattern;
    std::string content;
  };
  struct Strip {
    bool left, right;
  };
  struct Lowercase {};
  struct Spell {};  // as byte_alphabet.h does
  using Step = std::variant<NormalForm, Prepend, Replace, Strip, Lowercase, Spell>;

  static Step read_step(const JsonNode& node);
  static std::string apply(const Step& step, std::string_view text, size_t longest);

  std::vector<Step> steps_;
};

/// The pattern of a Replace or Split: {"String": "▁"} or {"Regex": "\\s+"}.
[[nodiscard]] Pattern read_pattern(const JsonNode& node);

}  // namespace heddle::tokenizer
