#include "tokenizer/vocabulary_state.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <utility>

#include "heddle/core/error.h"
#include "heddle/core/thread_pool.h"

#include "files/printable.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/sentencepiece_bpe.h"

namespace heddle::tokenizer {
namespace {

bool is_control(TokenType type) {
  return type == TokenType::kControl || type == TokenType::kUnknown;
}

void check(const Vocabulary& vocabulary) {
  const size_t size = vocabulary.tokens.size();
  HEDDLE_CHECK(size > 0 && size < size_t{1} << 30, "a vocabulary has ", size, " tokens");
  HEDDLE_CHECK(vocabulary.types.empty() || vocabulary.types.size() == size, "a vocabulary has ",
               size, " tokens, but ", vocabulary.types.size(), " token types");
  for (size_t id = 0; id < vocabulary.types.size(); ++id) {
    const auto type = static_cast<int32_t>(vocabulary.types[id]);
    HEDDLE_CHECK(type >= 1 && type <= 6, "token ", id, " has type ", type, ", expected 1 to 6");
  }
  for (const auto& [name, id] : {std::pair{"bos", vocabulary.bos}, {"eos", vocabulary.eos}}) {
    HEDDLE_CHECK(id == kNoToken || (id >= 0 && size_t(id) < size), name, " token is ", id,
                 ", the vocabulary has ", size, " tokens");
  }
  HEDDLE_CHECK(!vocabulary.add_bos || vocabulary.bos != kNoToken,
               "prompts begin with a bos token, but the vocabulary has none");
}

int32_t find_part(const IdByBytes& ids, const std::string& bytes, size_t rank,
                  const std::string& merge) {
  const auto found = ids.find(bytes);
  HEDDLE_CHECK(found != ids.end(), "merge ", rank, " (", files::quote(merge), ") needs the token ",
               files::quote(bytes), ", which the vocabulary lacks");
  return found->second;
}

std::vector<MergeRule> parse_merges(const std::vector<std::string>& merges, const IdByBytes& ids) {
  std::vector<MergeRule> rules;
  rules.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const std::string& merge = merges[rank];
    const size_t space = merge.find(' ');
    HEDDLE_CHECK(space != std::string::npos && space > 0 && space + 1 < merge.size(), "merge ",
                 rank, " is ", files::quote(merge), ", expected two tokens with a space between");
    const std::string left = bytes_of_spelling(std::string_view(merge).substr(0, space));
    const std::string right = bytes_of_spelling(std::string_view(merge).substr(space + 1));
    rules.push_back({find_part(ids, left, rank, merge), find_part(ids, right, rank, merge),
                     find_part(ids, left + right, rank, merge)});
  }
  return rules;
}

std::array<int32_t, 256> tokens_of_bytes(const IdByBytes& ids) {
  std::array<int32_t, 256> tokens;
  for (size_t byte = 0; byte < tokens.size(); ++byte) {
    const char c = static_cast<char>(byte);
    const auto found = ids.find(std::string_view(&c, 1));
    tokens[byte] = found == ids.end() ? kNoToken : found->second;
  }
  return tokens;
}

std::vector<TokenType> read_types(Vocabulary& vocabulary) {
  check(vocabulary);
  vocabulary.types.resize(vocabulary.tokens.size(), TokenType::kNormal);
  return std::move(vocabulary.types);
}

std::vector<std::string> read_bytes(Vocabulary& vocabulary, const std::vector<TokenType>& types) {
  for (size_t id = 0; id < types.size(); ++id) {
    std::string& token = vocabulary.tokens[id];
    if (types[id] == TokenType::kNormal) token = bytes_of_spelling(token);
  }
  return std::move(vocabulary.tokens);
}

/// The types by which encode looks for tokens. A normal token with a character outside the byte
/// alphabet stands for itself, and no merge leads to it: of equal bytes, say "âĢį" and U+200D, it
/// comes last.
std::vector<TokenType> types_to_encode(const Vocabulary& vocabulary, std::vector<TokenType> types) {
  for (size_t id = 0; id < types.size(); ++id) {
    const bool is_spelled = types[id] != TokenType::kNormal || is_spelling(vocabulary.tokens[id]);
    if (!is_spelled) types[id] = TokenType::kUserDefined;
  }
  return types;
}

/// The pieces of a SentencePiece vocabulary.
std::vector<std::string> read_pieces(const Vocabulary& vocabulary,
                                     const std::vector<TokenType>& types) {
  std::vector<std::string> bytes;
  for (size_t id = 0; id < types.size(); ++id) {
    bytes.push_back(bytes_of_sentencepiece(vocabulary.tokens[id], types[id]));
  }
  return bytes;
}

/// The tokens of the listed types; among equal bytes the type listed first and then the lowest id
/// counts.
IdByBytes index_tokens(const std::vector<std::string>& bytes, const std::vector<TokenType>& types,
                       std::initializer_list<TokenType> listed) {
  IdByBytes ids;
  for (const TokenType type : listed) {
    for (size_t id = 0; id < bytes.size(); ++id) {
      if (types[id] == type) ids.try_emplace(bytes[id], static_cast<int32_t>(id));
    }
  }
  return ids;
}

AddedTokens added_tokens(const std::vector<std::string>& bytes, const std::vector<TokenType>& types,
                         ControlTokens control) {
  std::vector<AddedTokens::Token> tokens;
  for (size_t id = 0; id < bytes.size(); ++id) {
    const bool parsed = control == ControlTokens::kParse && is_control(types[id]);
    if (parsed || types[id] == TokenType::kUserDefined) {
      tokens.push_back({bytes[id], static_cast<int32_t>(id)});
    }
  }
  return AddedTokens(std::move(tokens));
}

/// The tokens that are looked for in a text before anything else, and what lies between them.
class LiteralTokens {
 public:
  LiteralTokens(const std::vector<std::string>& texts, const std::vector<TokenType>& types)
      : user_defined_(added_tokens(texts, types, ControlTokens::kPlain)),
        user_defined_and_control_(added_tokens(texts, types, ControlTokens::kParse)) {}

  /// Appends the tokens to `ids`, and calls rest(part) for what is left, which may be empty.
  void split(std::string_view text, ControlTokens control, std::vector<int32_t>& ids,
             FunctionRef<void(std::string_view)> rest) const {
    const bool parses = control == ControlTokens::kParse;
    const AddedTokens& tokens = parses ? user_defined_and_control_ : user_defined_;
    size_t done = 0;
    for (const AddedTokens::Match& match : tokens.find_all(text)) {
      rest(text.substr(done, match.begin - done));
      ids.push_back(match.id);
      done = match.end;
    }
    rest(text.substr(done));
  }

 private:
  AddedTokens user_defined_, user_defined_and_control_;
};

class ByteLevelEncoder : public TextEncoder {
 public:
  /// `ordinary_ids`: the tokens that plain text may become, views that stay.
  ByteLevelEncoder(const Vocabulary& vocabulary, const std::vector<std::string>& bytes,
                   const std::vector<TokenType>& types, const IdByBytes& ordinary_ids)
      : literals_(bytes, types),
        bpe_(tokens_of_bytes(ordinary_ids), parse_merges(vocabulary.merges, ordinary_ids),
             static_cast<int32_t>(bytes.size())),
        pre_tokenizer_(vocabulary.pre_tokenizer) {
    if (pre_tokenizer_.prefers_whole_words()) words_ = ordinary_ids;
  }

  void encode(std::string_view text, ControlTokens control,
              std::vector<int32_t>& ids) const override {
    BytePairEncoder::Scratch scratch;
    literals_.split(text, control, ids,
                    [&](std::string_view part) { encode_words(part, scratch, ids); });
  }

 private:
  /// Appends the ids of text in which no added token is to be found.
  void encode_words(std::string_view text, BytePairEncoder::Scratch& scratch,
                    std::vector<int32_t>& ids) const {
    pre_tokenizer_.split(text, [&](std::string_view word) {
      if (pre_tokenizer_.prefers_whole_words()) {
        const auto whole = words_.find(word);
        if (whole != words_.end()) return ids.push_back(whole->second);
      }
      bpe_.encode(word, scratch, ids);
    });
  }

  LiteralTokens literals_;
  BytePairEncoder bpe_;
  PreTokenizer pre_tokenizer_;
  IdByBytes words_;  // that become a token whatever the merges say
};

class SentencePieceEncoder : public TextEncoder {
 public:
  SentencePieceEncoder(const Vocabulary& vocabulary, const std::vector<TokenType>& types)
      : literals_(vocabulary.tokens, types),
        bpe_(vocabulary.tokens, vocabulary.scores, types, unknown_token(types)),
        prefix_(vocabulary.add_space_prefix ? SpacePrefix::kAdd : SpacePrefix::kNone) {}

  void encode(std::string_view text, ControlTokens control,
              std::vector<int32_t>& ids) const override {
    literals_.split(text, control, ids,
                    [&](std::string_view part) { bpe_.encode(part, prefix_, ids); });
  }

 private:
  static int32_t unknown_token(const std::vector<TokenType>& types) {
    const auto unknown = std::ranges::find(types, TokenType::kUnknown);
    return unknown == types.end() ? kNoToken : static_cast<int32_t>(unknown - types.begin());
  }

  LiteralTokens literals_;
  SentencePieceBpe bpe_;
  SpacePrefix prefix_;
};

/// Takes away the space that was put before the text.
class SpacePrefixDecoder : public TextDecoder {
 public:
  explicit SpacePrefixDecoder(const std::vector<std::string>& bytes) : bytes_(bytes) {}

  void push(int32_t id, DecodeState& state, std::string& text) const override {
    std::string_view token = bytes_[static_cast<size_t>(id)];
    if (!std::exchange(state.has_tokens, true) && token.starts_with(' ')) token.remove_prefix(1);
    text += token;
  }
  void finish(DecodeState& state, std::string& /*text*/) const override { state = {}; }

 private:
  const std::vector<std::string>& bytes_;  // of the tokenizer, by id
};

}  // namespace

std::unique_ptr<Tokenizer::State> make_state(Vocabulary vocabulary) {
  auto state = std::make_unique<Tokenizer::State>();
  const std::vector<TokenType> types = read_types(vocabulary);
  const bool has_scores = vocabulary.kind == VocabularyKind::kSentencePieceBpe;
  const std::vector<TokenType> encoded = has_scores ? types : types_to_encode(vocabulary, types);
  if (has_scores) {
    state->encoder = std::make_unique<SentencePieceEncoder>(vocabulary, types);
    if (vocabulary.add_space_prefix) {
      state->decoder = std::make_unique<SpacePrefixDecoder>(state->bytes);
    }
  }
  state->bytes = has_scores ? read_pieces(vocabulary, types) : read_bytes(vocabulary, types);
  state->bos = vocabulary.bos;
  state->eos = vocabulary.eos;
  if (vocabulary.add_bos) state->begin = {vocabulary.bos};
  for (const TokenType type : types) state->control.push_back(is_control(type));
  state->ordinary_ids = index_tokens(
      state->bytes, encoded, {TokenType::kNormal, TokenType::kByte, TokenType::kUserDefined});
  state->control_ids = index_tokens(state->bytes, types,
                                    {TokenType::kControl, TokenType::kUnknown, TokenType::kUnused});
  if (!has_scores) {
    state->encoder =
        std::make_unique<ByteLevelEncoder>(vocabulary, state->bytes, types, state->ordinary_ids);
  }
  return state;
}

}  // namespace heddle::tokenizer
