#include "tokenizer/sentencepiece_bpe.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "heddle/core/error.h"

namespace heddle::tokenizer {
namespace {

constexpr std::string_view kSpace = "\u2581";

/// Bytes of the character that begins `text`, by its first byte; at most what there is.
size_t character_size(std::string_view text) {
  const auto first = static_cast<uint8_t>(text.front());
  const size_t size = first < 0xC0 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  return std::min(size, text.size());
}

size_t space_size(std::string_view text) {
  return text.starts_with(' ') ? 1 : text.starts_with(kSpace) ? kSpace.size() : 0;
}

/// Bytes up to where a space follows another character; all where none does.
size_t word_size(std::string_view text) {
  size_t size = 0;
  while (const size_t space = space_size(text.substr(size))) size += space;
  while (size < text.size() && space_size(text.substr(size)) == 0) ++size;
  return size;
}

uint32_t key_of_character(std::string_view character) {
  uint32_t key = 0;
  for (size_t i = 0; i < 4; ++i) {
    key = key << 8 | (i < character.size() ? static_cast<uint8_t>(character[i]) : 0u);
  }
  return key;
}

/// The byte of "<0x0A>", or -1.
int32_t byte_of(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return -1;
  int32_t byte = 0;
  for (const char c : token.substr(3, 2)) {
    const bool is_digit = c >= '0' && c <= '9';
    if (!is_digit && (c < 'A' || c > 'F')) return -1;
    byte = byte * 16 + (is_digit ? c - '0' : c - 'A' + 10);
  }
  return byte;
}

bool is_made_of_text(TokenType type) {
  return type == TokenType::kNormal || type == TokenType::kUserDefined ||
         type == TokenType::kUnused;
}

size_t common_prefix(std::string_view a, std::string_view b) {
  const auto ends = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<size_t>(ends.first - a.begin());
}

size_t common_suffix(std::string_view a, std::string_view b) {
  const auto ends = std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend());
  return static_cast<size_t>(ends.first - a.rbegin());
}

/// For each piece the longest other one that it begins with (ends with, by common_suffix), or -1.
/// In sorted order what a piece begins with stands before it, and one inside the other.
template <class Less, class Common>
std::vector<int32_t> longest_within(std::span<const std::string_view> pieces, Less less,
                                    Common common) {
  std::vector<int32_t> order, within(pieces.size(), -1), open;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (!pieces[i].empty()) order.push_back(static_cast<int32_t>(i));
  }
  std::sort(order.begin(), order.end(),
            [&](int32_t a, int32_t b) { return less(pieces[size_t(a)], pieces[size_t(b)]); });
  std::string_view last;
  for (const int32_t piece : order) {
    const std::string_view text = pieces[size_t(piece)];
    const size_t shared = common(last, text);
    while (!open.empty() && pieces[size_t(open.back())].size() > shared) open.pop_back();
    if (!open.empty()) within[size_t(piece)] = open.back();
    open.push_back(piece);
    last = text;
  }
  return within;
}

/// By token: how many distinct scores are higher.
std::vector<uint32_t> ranks_of(std::span<const float> scores) {
  std::vector<float> distinct(scores.begin(), scores.end());
  std::sort(distinct.begin(), distinct.end(), std::greater<>());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  std::vector<uint32_t> ranks;
  for (const float score : scores) {
    const auto at = std::lower_bound(distinct.begin(), distinct.end(), score, std::greater<>());
    ranks.push_back(static_cast<uint32_t>(at - distinct.begin()));
  }
  return ranks;
}

}  // namespace

/// A part of the text as it stands; the list is linked by position.
struct SentencePieceBpe::Symbol {
  std::string_view text;   // the character it began with
  Piece piece;             // kNoPiece: a character of no token
  int32_t previous, next;  // -1: none
  const Join* join;        // with the next, or nullptr
};

SentencePieceBpe::SentencePieceBpe(std::span<const std::string> tokens,
                                   std::span<const float> scores, std::span<const TokenType> types,
                                   int32_t unknown)
    : vocab_size_(static_cast<int32_t>(tokens.size())), unknown_(unknown) {
  HEDDLE_CHECK(tokens.size() < size_t{1} << 30, "a vocabulary has ", tokens.size(), " tokens");
  HEDDLE_CHECK(scores.size() == tokens.size(), "a vocabulary has ", tokens.size(), " tokens, but ",
               scores.size(), " scores");
  HEDDLE_CHECK(types.size() == tokens.size(), "a vocabulary has ", tokens.size(), " tokens, but ",
               types.size(), " token types");
  HEDDLE_CHECK(unknown == kNoToken || (unknown >= 0 && unknown < vocab_size_), "unknown token is ",
               unknown, ", the vocabulary has ", tokens.size(), " tokens");
  byte_tokens_.fill(kNoToken);
  std::vector<std::string_view> pieces(tokens.size());  // empty: of no use here
  std::unordered_map<std::string_view, int32_t> known;
  for (size_t id = 0; id < tokens.size(); ++id) {
    HEDDLE_CHECK(!std::isnan(scores[id]), "token ", id, " has the score NaN");
    if (is_made_of_text(types[id])) {
      if (known.try_emplace(tokens[id], static_cast<int32_t>(id)).second) pieces[id] = tokens[id];
    } else if (const int32_t byte = byte_of(tokens[id]); types[id] == TokenType::kByte &&
                                                         byte >= 0 &&
                                                         byte_tokens_[size_t(byte)] == kNoToken) {
      byte_tokens_[size_t(byte)] = static_cast<int32_t>(id);
    }
  }
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (word_size(pieces[id]) < pieces[id].size()) spaces_begin_words_ = false;
    for (std::string_view rest = pieces[id]; !rest.empty();) {
      const std::string_view character = rest.substr(0, character_size(rest));
      rest.remove_prefix(character.size());
      const auto added = piece_of_character_.try_emplace(key_of_character(character), kNoPiece);
      if (!added.second) continue;
      const auto token = known.find(character);
      added.first->second =
          token != known.end() ? token->second : static_cast<Piece>(pieces.size());
      if (token == known.end()) pieces.push_back(character);
    }
  }
  add_joins(pieces, ranks_of(scores));
}

/// All ways to make a token of two pieces. A token has fewer of them than bytes.
void SentencePieceBpe::add_joins(std::span<const std::string_view> pieces,
                                 std::span<const uint32_t> ranks) {
  const auto prefix = longest_within(pieces, std::less<>(), common_prefix);
  const auto is_less_backwards = [](std::string_view a, std::string_view b) {
    return std::lexicographical_compare(a.rbegin(), a.rend(), b.rbegin(), b.rend());
  };
  const auto suffix = longest_within(pieces, is_less_backwards, common_suffix);
  struct Found {
    Piece left;
    Join join;
  };
  std::vector<Found> found;
  std::vector<Piece> suffixes;
  for (Piece token = 0; token < vocab_size_; ++token) {
    suffixes.clear();  // the longest first
    for (Piece s = suffix[size_t(token)]; s >= 0; s = suffix[size_t(s)]) suffixes.push_back(s);
    const size_t size = pieces[size_t(token)].size();
    for (Piece p = prefix[size_t(token)]; p >= 0; p = prefix[size_t(p)]) {
      const size_t rest = size - pieces[size_t(p)].size();  // grows from turn to turn
      while (!suffixes.empty() && pieces[size_t(suffixes.back())].size() < rest) {
        suffixes.pop_back();
      }
      if (suffixes.empty()) break;
      const Piece s = suffixes.back();
      if (pieces[size_t(s)].size() == rest) found.push_back({p, {s, token, ranks[size_t(token)]}});
    }
  }
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
    return a.left != b.left ? a.left < b.left : a.join.right < b.join.right;
  });
  join_begin_.assign(pieces.size() + 1, 0);
  for (const Found& f : found) {
    joins_.push_back(f.join);
    ++join_begin_[size_t(f.left) + 1];
  }
  for (size_t left = 1; left < join_begin_.size(); ++left) {
    join_begin_[left] += join_begin_[left - 1];
  }
}

const SentencePieceBpe::Join* SentencePieceBpe::find_join(Piece left, Piece right) const {
  if (left == kNoPiece || right == kNoPiece) return nullptr;
  const Join* const begin = joins_.data() + join_begin_[size_t(left)];
  const Join* const end = joins_.data() + join_begin_[size_t(left) + 1];
  const Join* const join = std::lower_bound(
      begin, end, right, [](const Join& j, Piece value) { return j.right < value; });
  return join != end && join->right == right ? join : nullptr;
}

void SentencePieceBpe::split(std::string_view text, std::vector<Symbol>& symbols) const {
  symbols.clear();
  while (!text.empty()) {
    const std::string_view character =
        text.front() == ' ' ? text.substr(0, 1) : text.substr(0, character_size(text));
    const auto piece =
        piece_of_character_.find(key_of_character(character == " " ? kSpace : character));
    const auto position = static_cast<int32_t>(symbols.size());
    symbols.push_back({character, piece == piece_of_character_.end() ? kNoPiece : piece->second,
                       position - 1, position + 1, nullptr});
    text.remove_prefix(character.size());
  }
  if (!symbols.empty()) symbols.back().next = -1;
}

/// Looks up what may join the symbol with its next and queues that.
void SentencePieceBpe::add_candidate(int32_t position, std::vector<Symbol>& symbols,
                                     std::vector<uint64_t>& heap) const {
  Symbol& symbol = symbols[size_t(position)];
  symbol.join =
      symbol.next < 0 ? nullptr : find_join(symbol.piece, symbols[size_t(symbol.next)].piece);
  if (symbol.join == nullptr) return;
  heap.push_back(uint64_t{symbol.join->rank} << 32 | static_cast<uint32_t>(position));
}

/// Entries of the heap may be out of date; those whose symbol has another rank since then are. One
/// with the rank of what the symbol may be joined by now does no harm: it stands where that stands.
void SentencePieceBpe::join_all(std::vector<Symbol>& symbols, std::vector<uint64_t>& heap) const {
  heap.clear();
  for (size_t i = 0; i < symbols.size(); ++i) add_candidate(static_cast<int32_t>(i), symbols, heap);
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const auto rank = static_cast<uint32_t>(heap.back() >> 32);
    const auto position = static_cast<int32_t>(heap.back() & 0xFFFFFFFFu);
    heap.pop_back();
    Symbol& left = symbols[size_t(position)];
    if (left.join == nullptr || left.join->rank != rank) continue;

    Symbol& right = symbols[size_t(left.next)];
    left.piece = left.join->joined;
    left.next = right.next;
    right.join = nullptr;
    if (left.next >= 0) symbols[size_t(left.next)].previous = position;
    for (const int32_t changed : {position, left.previous}) {
      const size_t queued = heap.size();
      if (changed >= 0) add_candidate(changed, symbols, heap);
      if (heap.size() > queued) std::push_heap(heap.begin(), heap.end(), std::greater<>());
    }
  }
}

void SentencePieceBpe::append_bytes(std::string_view character, bool follows_unknown,
                                    std::vector<int32_t>& ids) const {
  const auto token_of = [&](char c) { return byte_tokens_[static_cast<uint8_t>(c)]; };
  if (std::all_of(character.begin(), character.end(),
                  [&](char c) { return token_of(c) != kNoToken; })) {
    for (const char c : character) ids.push_back(token_of(c));
  } else if (unknown_ != kNoToken && !follows_unknown) {
    ids.push_back(unknown_);
  }
}

void SentencePieceBpe::encode(std::string_view text, SpacePrefix prefix,
                              std::vector<int32_t>& ids) const {
  if (text.empty()) return;
  HEDDLE_CHECK(text.size() < size_t{1} << 29, "a text has ", text.size(),
               " bytes, at most 536870911 are supported");
  std::string prefixed;
  if (prefix == SpacePrefix::kAdd) text = prefixed.append(" ").append(text);
  std::vector<Symbol> symbols;
  std::vector<uint64_t> heap;
  const size_t begin = ids.size();
  while (!text.empty()) {
    const std::string_view word =
        text.substr(0, spaces_begin_words_ ? word_size(text) : text.size());
    text.remove_prefix(word.size());
    split(word, symbols);
    join_all(symbols, heap);
    for (int32_t i = 0; i >= 0; i = symbols[size_t(i)].next) {
      const Symbol& symbol = symbols[size_t(i)];
      if (symbol.piece >= 0 && symbol.piece < vocab_size_) {
        ids.push_back(symbol.piece);
      } else {
        const bool follows_unknown = ids.size() > begin && ids.back() == unknown_;
        append_bytes(symbol.text == " " ? kSpace : symbol.text, follows_unknown, ids);
      }
    }
  }
}

std::string bytes_of_sentencepiece(std::string_view token, TokenType type) {
  if (type == TokenType::kByte && byte_of(token) >= 0) {
    return std::string(1, static_cast<char>(byte_of(token)));
  }
  std::string bytes(token);
  if (type != TokenType::kNormal && type != TokenType::kUserDefined) return bytes;
  bytes.clear();
  for (size_t done = 0; done < token.size();) {
    const bool is_space = token.substr(done).starts_with(kSpace);
    bytes += is_space ? ' ' : token[done];
    done += is_space ? kSpace.size() : 1;
  }
  return bytes;
}

}  // namespace heddle::tokenizer
