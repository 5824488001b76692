#include "tokenizer/huggingface/unigram_model.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "heddle/core/error.h"

#include "files/printable.h"
#include "tokenizer/huggingface/characters.h"
#include "tokenizer/tokenizer.h"

namespace heddle::tokenizer {
namespace {

// At each place of a text so many bytes may be looked at. SentencePiece's have up to 64.
constexpr size_t kLongestToken = 1024;
constexpr double kUnknownPenalty = 10;  // below the lowest score

bool allowed(int32_t id, const std::vector<bool>* forbidden) {
  return forbidden == nullptr || !(*forbidden)[static_cast<size_t>(id)];
}

}  // namespace

UnigramModel::UnigramModel(const JsonNode& node, ModelVocabulary& vocabulary)
    : unknown_(kNoToken), byte_fallback_(node.boolean_or("byte_fallback", false)) {
  node.allow_only({"type", "unk_id", "vocab", "byte_fallback"});
  read_tokens(node.at("vocab"), vocabulary);
  if (const auto unknown = node.find("unk_id")) {
    HEDDLE_CHECK(vocabulary.end_id > 0, unknown->path(), " is given, but there are no tokens");
    unknown_ = static_cast<int32_t>(unknown->integer(vocabulary.end_id - 1));
  }
  constexpr char kDigits[] = "0123456789ABCDEF";
  for (size_t byte = 0; byte < byte_tokens_.size(); ++byte) {
    const std::string token = {'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'};
    byte_tokens_[byte] = vocabulary.find(token);
  }
}

void UnigramModel::read_tokens(const JsonNode& node, ModelVocabulary& vocabulary) {
  const auto& tokens = node.array();
  HEDDLE_CHECK(tokens.size() < size_t{1} << 30, node.path(), " has ", tokens.size(), " tokens");
  double lowest = std::numeric_limits<double>::infinity();
  for (const files::Json& token : tokens) {
    const size_t id = scores_.size();
    const files::JsonArray* const pair = token.if_array();
    HEDDLE_CHECK(pair != nullptr && pair->size() == 2 && pair->front().is_string() &&
                     pair->back().is_number(),
                 node.path(), "[", id, "] is not a pair of a token and a score");
    const std::string_view text = files::text_of(pair->front());
    if (text.size() > kLongestToken) {
      throw_error(ErrorCode::kUnsupported, node.path(), "[", id, "] has ", text.size(),
                  " bytes, at most ", kLongestToken, " are supported");
    }
    scores_.push_back(files::number_of(pair->back()));
    lowest = std::min(lowest, scores_.back());
    vocabulary.ids.insert_or_assign(text, static_cast<int32_t>(id));  // of equal ones the last
  }
  vocabulary.end_id = static_cast<int32_t>(tokens.size());
  unknown_score_ = lowest - kUnknownPenalty;
  build_trie({vocabulary.ids.begin(), vocabulary.ids.end()});
}

void UnigramModel::build_trie(std::vector<std::pair<std::string_view, int32_t>> tokens) {
  std::erase_if(tokens, [](const auto& token) { return token.first.empty(); });
  std::ranges::sort(tokens);
  struct Range {  // of the tokens that begin with the bytes that lead to a node
    size_t begin, end, depth;
  };
  std::vector<Range> ranges = {{0, tokens.size(), 0}};
  nodes_.emplace_back();
  for (size_t n = 0; n < nodes_.size(); ++n) {
    auto [begin, end, depth] = ranges[n];
    if (begin < end && tokens[begin].first.size() == depth)
      nodes_[n].token = tokens[begin++].second;
    HEDDLE_CHECK(nodes_.size() < std::numeric_limits<uint32_t>::max() - 256,
                 "a vocabulary has too many bytes");
    nodes_[n].children = static_cast<uint32_t>(nodes_.size());
    while (begin < end) {
      const char byte = tokens[begin].first[depth];
      size_t last = begin + 1;
      while (last < end && tokens[last].first[depth] == byte) ++last;
      nodes_.push_back({.byte = static_cast<uint8_t>(byte)});
      ranges.push_back({begin, last, depth + 1});
      ++nodes_[n].num_children;
      begin = last;
    }
  }
}

const UnigramModel::Node* UnigramModel::child_of(const Node& node, uint8_t byte) const {
  const Node* const begin = nodes_.data() + node.children;
  const Node* const end = begin + node.num_children;
  const Node* const child =
      std::lower_bound(begin, end, byte, [](const Node& n, uint8_t b) { return n.byte < b; });
  return child != end && child->byte == byte ? child : nullptr;
}

int32_t UnigramModel::find(std::string_view piece) const {
  const Node* node = nodes_.data();
  for (const char c : piece) {
    node = child_of(*node, static_cast<uint8_t>(c));
    if (node == nullptr) return kNoToken;
  }
  return node->token;
}

/// steps [word.size() + 1]: how best to get to each place. Of equally good ways the first counts.
void UnigramModel::take_steps(std::string_view word, const std::vector<bool>* forbidden,
                              std::vector<Step>& steps) const {
  steps.assign(word.size() + 1, Step());
  for (size_t begin = 0; begin < word.size();) {
    size_t next = begin;
    (void)take_character(word, next);
    const auto offer = [&](size_t end, double score, int32_t token) {
      const double sum = score + steps[begin].score;
      if (steps[end].begin >= 0 && sum <= steps[end].score) return;
      steps[end] = {sum, static_cast<int64_t>(begin), token};
    };
    bool has_character = false;
    const Node* node = nodes_.data();
    for (size_t end = begin; end < word.size();) {
      node = child_of(*node, static_cast<uint8_t>(word[end++]));
      if (node == nullptr) break;
      if (node->token < 0 || !allowed(node->token, forbidden)) continue;
      offer(end, scores_[static_cast<size_t>(node->token)], node->token);
      has_character = has_character || end == next;
    }
    if (!has_character) {
      HEDDLE_CHECK(unknown_ != kNoToken,
                   "a text has a character without a token, and the model has no unk_id");
      offer(next, unknown_score_, unknown_);
    }
    begin = next;
  }
}

void UnigramModel::append_piece(std::string_view piece, const std::vector<bool>* forbidden,
                                std::vector<int32_t>& ids) const {
  const int32_t id = find(piece);
  if (id != kNoToken && allowed(id, forbidden)) return ids.push_back(id);
  const bool has_bytes = byte_fallback_ && std::ranges::all_of(piece, [&](char c) {
                           return byte_tokens_[static_cast<uint8_t>(c)] != kNoToken;
                         });
  if (!has_bytes) return ids.push_back(unknown_);
  for (const char c : piece) ids.push_back(byte_tokens_[static_cast<uint8_t>(c)]);
}

void UnigramModel::encode(std::string_view word, Scratch& scratch,
                          std::vector<int32_t>& ids) const {
  std::vector<Step> steps;
  take_steps(word, scratch.forbidden, steps);
  std::vector<std::string_view> pieces;  // the last first
  bool joins = false;                    // whether the last piece is of unknown characters
  for (size_t end = word.size(); end > 0;) {
    const auto begin = static_cast<size_t>(steps[end].begin);
    const bool unknown = steps[end].token == unknown_;
    std::string_view piece = word.substr(begin, end - begin);
    if (unknown && joins) {
      pieces.back() = word.substr(begin, piece.size() + pieces.back().size());
    } else {
      pieces.push_back(piece);
    }
    joins = unknown;
    end = begin;
  }
  for (auto it = pieces.rbegin(); it != pieces.rend(); ++it) {
    append_piece(*it, scratch.forbidden, ids);
  }
}

}  // namespace heddle::tokenizer
