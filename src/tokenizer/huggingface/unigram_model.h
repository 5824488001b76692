#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "heddle/core/thread_pool.h"

#include "tokenizer/huggingface/json_node.h"
#include "tokenizer/huggingface/model.h"
#include "tokenizer/huggingface/model_vocabulary.h"

namespace heddle::tokenizer {

/// The model of type Unigram of a tokenizer.json: a word becomes the tokens whose scores have the
/// highest sum (Kudo 2018, arXiv 1804.10959), found by Viterbi's algorithm. Runs of characters
/// without a token become the tokens of their bytes (byte_fallback) or the unknown token.
class UnigramModel : public Model {
 public:
  /// `node`: the file's "model", whose tokens are added to `vocabulary` (views of the file).
  /// Error(kUnsupported) where a token has more than 1 KiB.
  UnigramModel(const JsonNode& node, ModelVocabulary& vocabulary);

  void encode(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const override;

 private:
  // A trie; the children of a node lie next to one another, by byte, after those of the nodes
  // before it.
  struct Node {
    uint32_t children = 0;
    int32_t token = -1;
    uint16_t num_children = 0;
    uint8_t byte = 0;  // that leads here
  };
  /// The best way to the end of a piece.
  struct Step {
    double score = 0;
    int64_t begin = -1;  // of the piece; -1: there is no way
    int32_t token = -1;
  };

  void read_tokens(const JsonNode& node, ModelVocabulary& vocabulary);
  void build_trie(std::vector<std::pair<std::string_view, int32_t>> tokens);
  [[nodiscard]] const Node* child_of(const Node& node, uint8_t byte) const;
  [[nodiscard]] int32_t find(std::string_view piece) const;
  void take_steps(std::string_view word, const std::vector<bool>* forbidden,
                  std::vector<Step>& steps) const;
  void append_piece(std::string_view piece, const std::vector<bool>* forbidden,
                    std::vector<int32_t>& ids) const;

  std::vector<Node> nodes_;
  std::vector<double> scores_;  // by id
  double unknown_score_ = 0;
  int32_t unknown_;
  bool byte_fallback_;
  std::array<int32_t, 256> byte_tokens_;
};

}  // namespace heddle::tokenizer
