#include "tokenizer/tokenizer.h"

#include <array>
#include <initializer_list>
#include <unordered_map>
#include <utility>

#include "heddle/core/error.h"

#include "files/printable.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/utf8.h"

namespace heddle::tokenizer {
namespace {

using IdByBytes = std::unordered_map<std::string_view, int32_t>;

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

}  // namespace

struct Tokenizer::State {
  std::vector<TokenType> types;    // by id
  std::vector<std::string> bytes;  // by id; the members below hold views into them
  int32_t bos, eos;
  bool add_bos;
  IdByBytes ordinary_ids;  // of the tokens that plain text may become
  IdByBytes other_ids;     // of the rest
  AddedTokens user_defined, user_defined_and_control;
  BytePairEncoder bpe;
  PreTokenizer pre_tokenizer;

  explicit State(Vocabulary vocabulary)
      : types(read_types(vocabulary)),
        bytes(read_bytes(vocabulary, types)),
        bos(vocabulary.bos),
        eos(vocabulary.eos),
        add_bos(vocabulary.add_bos),
        ordinary_ids(index_tokens(bytes, types,
                                  {TokenType::kNormal, TokenType::kByte, TokenType::kUserDefined})),
        other_ids(index_tokens(bytes, types,
                               {TokenType::kControl, TokenType::kUnknown, TokenType::kUnused})),
        user_defined(added_tokens(bytes, types, ControlTokens::kPlain)),
        user_defined_and_control(added_tokens(bytes, types, ControlTokens::kParse)),
        bpe(tokens_of_bytes(ordinary_ids), parse_merges(vocabulary.merges, ordinary_ids),
            static_cast<int32_t>(bytes.size())),
        pre_tokenizer(vocabulary.pre_tokenizer) {}

  /// Appends the ids of text in which no added token is to be found.
  void encode_words(std::string_view text, BytePairEncoder::Scratch& scratch,
                    std::vector<int32_t>& ids) const {
    pre_tokenizer.split(text, [&](std::string_view word) {
      if (pre_tokenizer.prefers_whole_words()) {
        const auto whole = ordinary_ids.find(word);
        if (whole != ordinary_ids.end()) return ids.push_back(whole->second);
      }
      bpe.encode(word, scratch, ids);
    });
  }
};

Tokenizer::Tokenizer(Vocabulary vocabulary)
    : state_(std::make_unique<const State>(std::move(vocabulary))) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

std::vector<int32_t> Tokenizer::encode(std::string_view text, ControlTokens control) const {
  HEDDLE_CHECK(text.size() < size_t{1} << 29, "a text has ", text.size(),
               " bytes, at most 536870911 are supported");
  const std::string clean = replace_invalid_utf8(text);
  const std::string_view rest = clean;
  const AddedTokens& added =
      control == ControlTokens::kParse ? state_->user_defined_and_control : state_->user_defined;
  std::vector<int32_t> ids;
  BytePairEncoder::Scratch scratch;
  size_t done = 0;
  for (const AddedTokens::Match& match : added.find_all(rest)) {
    state_->encode_words(rest.substr(done, match.begin - done), scratch, ids);
    ids.push_back(match.id);
    done = match.end;
  }
  state_->encode_words(rest.substr(done), scratch, ids);
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string bytes;
  for (const int32_t id : ids) bytes += token_bytes(id);
  return bytes;
}

std::string_view Tokenizer::token_bytes(int32_t id) const {
  HEDDLE_CHECK(id >= 0 && id < vocab_size(), "token ", id, " of a vocabulary of ", vocab_size());
  return state_->bytes[size_t(id)];
}

int32_t Tokenizer::find(std::string_view bytes) const {
  for (const IdByBytes* ids : {&state_->other_ids, &state_->ordinary_ids}) {
    const auto found = ids->find(bytes);
    if (found != ids->end()) return found->second;
  }
  return kNoToken;
}

bool Tokenizer::is_control(int32_t id) const {
  HEDDLE_CHECK(id >= 0 && id < vocab_size(), "token ", id, " of a vocabulary of ", vocab_size());
  return tokenizer::is_control(state_->types[size_t(id)]);
}

int32_t Tokenizer::vocab_size() const { return static_cast<int32_t>(state_->bytes.size()); }
int32_t Tokenizer::bos() const { return state_->bos; }
int32_t Tokenizer::eos() const { return state_->eos; }
bool Tokenizer::add_bos() const { return state_->add_bos; }

}  // namespace heddle::tokenizer
