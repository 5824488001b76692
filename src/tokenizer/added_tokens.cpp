#include "tokenizer/added_tokens.h"

#include <algorithm>
#include <string>

#include "heddle/core/error.h"

#include "tokenizer/utf8.h"

namespace heddle::tokenizer {
namespace {

// A node of the trie takes 20 bytes, and another 20 while it is built. Models have a few kilobytes.
constexpr size_t kMaxBytes = size_t{4} << 20;

/// Compares texts from their ends.
bool is_less_backwards(std::string_view a, std::string_view b) {
  return std::lexicographical_compare(
      a.rbegin(), a.rend(), b.rbegin(), b.rend(),
      [](char x, char y) { return static_cast<uint8_t>(x) < static_cast<uint8_t>(y); });
}

uint8_t byte_from_end(std::string_view text, size_t depth) {
  return static_cast<uint8_t>(text[text.size() - 1 - depth]);
}

}  // namespace

AddedTokens::AddedTokens(std::vector<Token> tokens) {
  std::erase_if(tokens, [](const Token& token) {
    return token.text.empty() || replace_invalid_utf8(token.text) != token.text;
  });
  std::stable_sort(tokens.begin(), tokens.end(), [](const Token& a, const Token& b) {
    return is_less_backwards(a.text, b.text);
  });
  const auto equal = [](const Token& a, const Token& b) { return a.text == b.text; };
  tokens.erase(std::unique(tokens.begin(), tokens.end(), equal), tokens.end());
  size_t num_bytes = 0;
  for (const Token& token : tokens) num_bytes += token.text.size();
  if (num_bytes > kMaxBytes) {
    throw_error(ErrorCode::kUnsupported, "the control and user-defined tokens have ", num_bytes,
                " bytes in all, supported: up to ", kMaxBytes);
  }
  build_trie(tokens);
}

/// Node by node in the order of their depth: a suffix lies less deep, so it is there before.
void AddedTokens::build_trie(const std::vector<Token>& tokens) {
  struct Range {  // of the sorted tokens that end with the bytes that lead to a node
    uint32_t begin, end, depth;
  };
  std::vector<Range> ranges = {{0, static_cast<uint32_t>(tokens.size()), 0}};
  for (const Token& token : tokens) {
    tokens_.push_back({static_cast<uint32_t>(token.text.size()), token.id});
  }
  nodes_.emplace_back();
  for (uint32_t n = 0; n < nodes_.size(); ++n) {
    auto [begin, end, depth] = ranges[n];
    const uint32_t suffix = nodes_[n].suffix;
    nodes_[n].token = nodes_[suffix].token;
    if (begin < end && tokens_[begin].size == depth) {
      nodes_[n].token = static_cast<int32_t>(begin++);
    }
    nodes_[n].children = static_cast<uint32_t>(nodes_.size());
    while (begin < end) {
      const uint8_t byte = byte_from_end(tokens[begin].text, depth);
      uint32_t last = begin + 1;
      while (last < end && byte_from_end(tokens[last].text, depth) == byte) ++last;
      const auto child = static_cast<uint32_t>(nodes_.size());
      const uint32_t after = n == kRoot ? kRoot : next(suffix, byte);
      nodes_.push_back({.suffix = after, .byte = byte});
      ranges.push_back({begin, last, depth + 1});
      ++nodes_[n].num_children;
      if (n == kRoot) after_root_[byte] = child;
      begin = last;
    }
  }
}

/// kRoot where there is none.
uint32_t AddedTokens::child_of(uint32_t node, uint8_t byte) const {
  if (node == kRoot) return after_root_[byte];
  const Node* const begin = nodes_.data() + nodes_[node].children;
  const Node* const end = begin + nodes_[node].num_children;
  const Node* const child =
      std::lower_bound(begin, end, byte, [](const Node& n, uint8_t b) { return n.byte < b; });
  return child != end && child->byte == byte ? static_cast<uint32_t>(child - nodes_.data()) : kRoot;
}

/// The node of the longest text in the trie that ends with `byte` after what led to `node`.
uint32_t AddedTokens::next(uint32_t node, uint8_t byte) const {
  for (;; node = nodes_[node].suffix) {
    const uint32_t child = child_of(node, byte);
    if (child != kRoot || node == kRoot) return child;
  }
}

/// Going backwards, the longest token that ends at a place is, read forwards, the longest that
/// begins there.
std::vector<AddedTokens::Match> AddedTokens::find_all(std::string_view text) const {
  struct Beginning {
    uint32_t place;
    int32_t token;
  };
  std::vector<Beginning> beginnings;  // the last first
  uint32_t node = kRoot;
  for (size_t i = text.size(); i-- > 0;) {
    node = next(node, static_cast<uint8_t>(text[i]));
    const int32_t token = nodes_[node].token;
    if (token >= 0) beginnings.push_back({static_cast<uint32_t>(i), token});
  }
  std::vector<Match> matches;
  size_t done = 0;
  for (auto it = beginnings.rbegin(); it != beginnings.rend(); ++it) {
    if (it->place < done) continue;
    const Known& token = tokens_[static_cast<size_t>(it->token)];
    done = it->place + token.size;
    matches.push_back({it->place, done, token.id});
  }
  return matches;
}

}  // namespace heddle::tokenizer
