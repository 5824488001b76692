#include "tokenizer/huggingface/bpe_model.h"

#include <algorithm>
#include <utility>

#include "heddle/core/error.h"

#include "files/json_text.h"
#include "files/printable.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/huggingface/characters.h"
#include "tokenizer/tokenizer.h"

namespace heddle::tokenizer {
namespace {

constexpr char kDigits[] = "0123456789ABCDEF";

/// The two tokens of a merge: "a b" or ["a", "b"].
std::pair<std::string_view, std::string_view> read_pair(const files::Json& merge, size_t rank,
                                                        const std::string& where) {
  if (merge.is_string()) {
    const std::string_view text = files::text_of(merge);
    const size_t space = text.find(' ');
    HEDDLE_CHECK(space != text.npos && text.find(' ', space + 1) == text.npos, where, ": merge ",
                 rank, " is ", files::quote(text), ", expected two tokens with a space between");
    return {text.substr(0, space), text.substr(space + 1)};
  }
  const files::JsonArray* const pair = merge.if_array();
  HEDDLE_CHECK(
      pair != nullptr && pair->size() == 2 && pair->front().is_string() && pair->back().is_string(),
      where, ": merge ", rank, " is not a pair of tokens");
  return {files::text_of(pair->front()), files::text_of(pair->back())};
}

std::vector<MergeRule> read_merges(const JsonNode& node, const ModelVocabulary& vocabulary) {
  std::vector<MergeRule> rules;
  rules.reserve(node.array().size());
  const auto find = [&](const std::string& token) {
    const int32_t id = vocabulary.find(token);
    HEDDLE_CHECK(id != kNoToken, node.path(), ": merge ", rules.size(), " needs the token ",
                 files::quote(token), ", which the vocabulary lacks");
    return id;
  };
  for (const files::Json& merge : node.array()) {
    const auto [left, right] = read_pair(merge, rules.size(), node.path());
    std::string merged(left);
    merged += right;
    rules.push_back({find(std::string(left)), find(std::string(right)), find(merged)});
  }
  return rules;
}

/// The tokens of bytes spelled in the alphabet; kNoToken where there is none.
std::array<int32_t, 256> spelled_bytes(const ModelVocabulary& vocabulary) {
  std::array<int32_t, 256> tokens;
  for (size_t byte = 0; byte < tokens.size(); ++byte) {
    const char c = static_cast<char>(byte);
    tokens[byte] = vocabulary.find(spelling_of_bytes(std::string_view(&c, 1)));
  }
  return tokens;
}

/// Fields that no model of the families that are known sets.
void refuse_unknown_options(const JsonNode& node) {
  node.allow_only({"type", "dropout", "unk_token", "continuing_subword_prefix",
                   "end_of_word_suffix", "fuse_unk", "byte_fallback", "ignore_merges", "vocab",
                   "merges"});
  if (const auto dropout = node.find("dropout");
      dropout && !files::is_number(dropout->value(), 0)) {
    throw_error(ErrorCode::kUnsupported, dropout->path(), " is ",
                files::printable(files::json_text(dropout->value())), ", supported: null");
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (const auto affix = node.find(key); affix && !affix->string().empty()) {
      throw_error(ErrorCode::kUnsupported, affix->path(), " is ", files::quote(affix->string()),
                  ", supported: null");
    }
  }
}

}  // namespace

BpeModel::BpeModel(const JsonNode& node, const ModelVocabulary& vocabulary, bool spells_bytes)
    : pairs_((refuse_unknown_options(node), spelled_bytes(vocabulary)),
             read_merges(node.at("merges"), vocabulary), vocabulary.end_id),
      byte_fallback_(node.boolean_or("byte_fallback", false)),
      fuse_unknown_(node.boolean_or("fuse_unk", false)),
      ignores_merges_(node.boolean_or("ignore_merges", false)) {
  read_fallback(node, vocabulary);
  const auto spelled = spelled_bytes(vocabulary);
  const bool all_known = std::ranges::find(spelled, kNoToken) == spelled.end();
  encodes_bytes_ = spells_bytes && (all_known || (!byte_fallback_ && !has_unknown_));
  if (!encodes_bytes_) index_characters(vocabulary);
  if (!ignores_merges_) return;
  for (const auto& [token, id] : vocabulary.ids) {
    if (!spells_bytes) {
      words_.emplace(token, id);
    } else if (is_spelling(token)) {
      words_.emplace(bytes_of_spelling(token), id);
    }
  }
}

void BpeModel::read_fallback(const JsonNode& node, const ModelVocabulary& vocabulary) {
  unknown_ = kNoToken;
  if (const auto unknown = node.find("unk_token")) {
    has_unknown_ = true;
    unknown_text_ = unknown->string();
    unknown_ = vocabulary.find(unknown_text_);
  }
  for (size_t byte = 0; byte < byte_tokens_.size(); ++byte) {
    const std::string token = {'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'};
    byte_tokens_[byte] = vocabulary.find(token);
  }
}

void BpeModel::index_characters(const ModelVocabulary& vocabulary) {
  characters_.resize(0x110000 >> 8);
  for (const auto& [token, id] : vocabulary.ids) {
    if (token.empty()) continue;
    size_t size = 0;
    const char32_t character = take_character(token, size);
    if (size != token.size()) continue;
    auto& page = characters_[character >> 8];
    if (page == nullptr) {
      page = std::make_unique<std::array<int32_t, 256>>();
      page->fill(kNoToken);
    }
    (*page)[character & 255] = id;
  }
}

int32_t BpeModel::find_character(char32_t character) const {
  const auto& page = characters_[character >> 8];
  return page == nullptr ? kNoToken : (*page)[character & 255];
}

/// False where a byte has no token.
bool BpeModel::add_bytes(std::string_view character, BytePairEncoder::Scratch& pairs) const {
  for (const char c : character) {
    if (byte_tokens_[static_cast<uint8_t>(c)] == kNoToken) return false;
  }
  for (const char c : character) pairs.add(byte_tokens_[static_cast<uint8_t>(c)]);
  return true;
}

void BpeModel::add_unknown(Unknown& unknown, BytePairEncoder::Scratch& pairs) const {
  if (!has_unknown_) return;
  HEDDLE_CHECK(unknown_ != kNoToken,
               "a text has a character without a token, and the vocabulary lacks the unk_token ",
               files::quote(unknown_text_));
  if (unknown.pending && !fuse_unknown_) pairs.add(unknown_);
  unknown.pending = true;
}

/// An unknown token waits for the next character that has a token: byte tokens overtake it, as they
/// do in the tokenizers package.
void BpeModel::add_characters(std::string_view word, BytePairEncoder::Scratch& pairs) const {
  Unknown unknown;
  for (size_t at = 0; at < word.size();) {
    const size_t begin = at;
    const int32_t id = find_character(take_character(word, at));
    if (id != kNoToken) {
      if (std::exchange(unknown.pending, false)) pairs.add(unknown_);
      pairs.add(id);
    } else if (!byte_fallback_ || !add_bytes(word.substr(begin, at - begin), pairs)) {
      add_unknown(unknown, pairs);
    }
  }
  if (unknown.pending) pairs.add(unknown_);
}

void BpeModel::encode(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const {
  if (ignores_merges_) {
    const auto whole = words_.find(word);
    const bool found = whole != words_.end();
    if (found && (scratch.forbidden == nullptr || !(*scratch.forbidden)[size_t(whole->second)])) {
      return ids.push_back(whole->second);
    }
  }
  scratch.pairs.forbidden = scratch.forbidden;
  if (encodes_bytes_) return pairs_.encode(word, scratch.pairs, ids);
  add_characters(word, scratch.pairs);
  pairs_.merge(scratch.pairs, ids);
}

}  // namespace heddle::tokenizer
