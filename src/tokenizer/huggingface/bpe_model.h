#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/bpe.h"
#include "tokenizer/huggingface/json_node.h"
#include "tokenizer/huggingface/model.h"
#include "tokenizer/huggingface/model_vocabulary.h"

namespace heddle::tokenizer {

/// The model of type BPE of a tokenizer.json: a word starts as the tokens of its characters, and
/// the strongest merges are applied. A character without a token becomes the tokens of its bytes,
/// "<0xE2>" and so on (byte_fallback), or else the unknown token, or nothing.
class BpeModel : public Model {
 public:
  /// `node`: the file's "model". spells_bytes: words come as bytes, and their tokens are spelled in
  /// the alphabet of byte_alphabet.h.
  BpeModel(const JsonNode& node, const ModelVocabulary& vocabulary, bool spells_bytes);

  void encode(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const override;

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  /// Tokens that have not been added yet, since they may be one with the next.
  struct Unknown {
    bool pending = false;
  };

  void read_fallback(const JsonNode& node, const ModelVocabulary& vocabulary);
  void index_characters(const ModelVocabulary& vocabulary);
  [[nodiscard]] int32_t find_character(char32_t character) const;
  [[nodiscard]] bool add_bytes(std::string_view character, BytePairEncoder::Scratch& pairs) const;
  void add_unknown(Unknown& unknown, BytePairEncoder::Scratch& pairs) const;
  void add_characters(std::string_view word, BytePairEncoder::Scratch& pairs) const;

  BytePairEncoder pairs_;
  // Whole words that become a token whatever the merges say (ignore_merges).
  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> words_;
  // By the upper bits of a character, tables by its lower 8.
  std::vector<std::unique_ptr<std::array<int32_t, 256>>> characters_;
  std::array<int32_t, 256> byte_tokens_;  // of byte_fallback
  bool byte_fallback_, fuse_unknown_, ignores_merges_, encodes_bytes_;
  bool has_unknown_ = false;
  int32_t unknown_;
  std::string unknown_text_;
};

}  // namespace heddle::tokenizer
