#include "tokenizer/huggingface/added_vocabulary.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "heddle/core/error.h"

#include "files/printable.h"
#include "tokenizer/huggingface/characters.h"

namespace heddle::tokenizer {
namespace {

bool begins_with_word(std::string_view text) {
  size_t at = 0;
  return !text.empty() && is_word_character(take_character(text, at));
}

bool ends_with_word(std::string_view text) {
  return !text.empty() && begins_with_word(text.substr(last_character(text)));
}

/// Where the white space before `end` begins, but not before `first`.
size_t white_space_before(std::string_view text, size_t first, size_t end) {
  while (end > first) {
    const size_t begin = last_character(text.substr(0, end));
    size_t at = begin;
    if (begin < first || !is_white_space(take_character(text, at))) break;
    end = begin;
  }
  return end;
}

size_t white_space_after(std::string_view text, size_t begin) {
  while (begin < text.size()) {
    size_t at = begin;
    if (!is_white_space(take_character(text, at))) break;
    begin = at;
  }
  return begin;
}

}  // namespace

AddedVocabulary::AddedVocabulary(const JsonNode& node, std::span<const ExtraToken> extra,
                                 const ModelVocabulary& vocabulary, const Normalizer& normalizer)
    : tokens_(read_tokens(node, extra, vocabulary, normalizer)),
      raw_(matcher(tokens_, Phase::kRaw)),
      normalized_(matcher(tokens_, Phase::kNormalized)) {}

AddedVocabulary::Token AddedVocabulary::read_token(const JsonNode& node) {
  node.allow_only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
  (void)node.at("id").integer((int64_t{1} << 30) - 1);
  Token token;
  token.content = node.at("content").string();
  token.special = node.at("special").boolean();
  token.normalized = node.at("normalized").boolean();
  token.lstrip = node.at("lstrip").boolean();
  token.rstrip = node.at("rstrip").boolean();
  token.single_word = node.at("single_word").boolean();
  return token;
}

std::vector<AddedVocabulary::Token> AddedVocabulary::read_tokens(const JsonNode& node,
                                                                 std::span<const ExtraToken> extra,
                                                                 const ModelVocabulary& vocabulary,
                                                                 const Normalizer& normalizer) {
  std::vector<Token> tokens;
  std::unordered_map<std::string, size_t> row_of;
  auto next_id = static_cast<int32_t>(vocabulary.ids.size());
  const auto add = [&](Token token) {
    if (token.content.empty()) return;
    const auto [row, is_new] = row_of.try_emplace(token.content, tokens.size());
    token.id = is_new ? vocabulary.find(token.content) : tokens[row->second].id;
    if (token.id == kNoToken) token.id = next_id++;
    token.decoded = token.normalized ? normalizer.apply(token.content) : token.content;
    if (is_new) {
      tokens.push_back(std::move(token));
    } else {
      token.special = token.special || tokens[row->second].special;
      tokens[row->second] = std::move(token);
    }
  };
  const bool has_tokens = !node.value().is_null();
  for (size_t i = 0; has_tokens && i < node.array().size(); ++i) add(read_token(node.element(i)));
  for (const ExtraToken& token : extra) {
    if (!token.replaces && row_of.contains(token.content)) continue;
    add({.content = token.content,
         .decoded = {},
         .id = kNoToken,
         .special = token.special,
         .normalized = token.normalized,
         .lstrip = token.lstrip,
         .rstrip = token.rstrip,
         .single_word = token.single_word});
  }
  return tokens;
}

AddedTokens AddedVocabulary::matcher(const std::vector<Token>& tokens, Phase phase) {
  std::vector<AddedTokens::Token> texts;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].normalized != (phase == Phase::kNormalized)) continue;
    texts.push_back({tokens[i].decoded, static_cast<int32_t>(i)});
  }
  return AddedTokens(std::move(texts));
}

bool AddedVocabulary::has_normalized() const {
  return std::ranges::any_of(tokens_, [](const Token& token) { return token.normalized; });
}

void AddedVocabulary::split(std::string_view text, Phase phase, ControlTokens control,
                            FunctionRef<void(size_t, size_t)> left,
                            FunctionRef<void(int32_t)> token) const {
  size_t done = 0;
  size_t space_begin = 0, space_end = 0;  // white space that was gone over, lest it be again
  const AddedTokens& matcher = phase == Phase::kRaw ? raw_ : normalized_;
  for (const AddedTokens::Match& match : matcher.find_all(text)) {
    const Token& found = tokens_[static_cast<size_t>(match.id)];
    if (found.special && control == ControlTokens::kPlain) continue;
    size_t begin = match.begin, end = match.end;
    if (found.single_word &&
        (ends_with_word(text.substr(0, begin)) || begins_with_word(text.substr(end)))) {
      continue;
    }
    if (found.lstrip) begin = white_space_before(text, std::min(done, begin), begin);
    if (found.rstrip) {
      if (end < space_begin || end > space_end) {
        space_begin = end;
        space_end = white_space_after(text, end);
      }
      end = space_end;
    }
    if (done < begin) left(done, begin);
    token(found.id);
    done = end;
  }
  if (done < text.size()) left(done, text.size());
}

}  // namespace heddle::tokenizer
