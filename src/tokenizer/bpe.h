#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace heddle::tokenizer {

/// Two neighbouring tokens may become one.
struct MergeRule {
  int32_t left, right, merged;
};

/// Byte pair encoding of single words: a word starts as the tokens of its bytes; as long as any
/// rule applies, the strongest is applied at the leftmost place (Sennrich et al. 2016, arXiv
/// 1508.07909). A word of n bytes takes O(n log n).
class BytePairEncoder {
 public:
  /// Buffers of one caller, so that words share their memory.
  struct Scratch;

  /// byte_tokens: the token of each byte; bytes whose token is negative are left out of a word
  /// before anything merges. rules: the strongest first; all ids in [0, vocab_size). Of two rules
  /// for the same pair the later counts.
  BytePairEncoder(const std::array<int32_t, 256>& byte_tokens, std::span<const MergeRule> rules,
                  int32_t vocab_size);

  /// Appends the tokens of `word` to `ids`.
  void encode(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const;

  /// Merges a word that starts as the tokens added to `scratch` since the last merge.
  void merge(Scratch& scratch, std::vector<int32_t>& ids) const;

 private:
  struct Rule {
    int32_t right;
    uint32_t rank;  // 0: the strongest
    int32_t merged;
  };
  /// The rule for the pair, or nullptr.
  [[nodiscard]] const Rule* find(int32_t left, int32_t right) const;
  // kForbids: whether scratch.forbidden is there. Both are compiled, words without pay nothing.
  template <bool kForbids>
  void add_candidate(int32_t position, Scratch& scratch) const;
  template <bool kForbids>
  void merge_symbols(Scratch& scratch, std::vector<int32_t>& ids) const;

  std::array<int32_t, 256> byte_tokens_;
  std::vector<Rule> rules_;           // by left token, then by right token
  std::vector<uint32_t> rule_begin_;  // [vocab_size + 1]: where the rules of a left token begin
};

struct BytePairEncoder::Scratch {
  /// The word goes on with this token.
  void add(int32_t id) {
    const auto position = static_cast<int32_t>(symbols.size());
    symbols.push_back({id, position - 1, position + 1, nullptr});
  }

  /// One token of the word as it stands; the list is linked by position.
  struct Symbol {
    int32_t id;
    int32_t previous, next;  // -1: none
    const Rule* rule;        // what may merge it with the next, or nullptr
  };
  std::vector<Symbol> symbols;
  std::vector<uint64_t>
      heap;  // rank << 32 | position of the left symbol; entries may be out of date
  const std::vector<bool>* forbidden = nullptr;  // by id: what nothing merges to; nullptr: none
};

}  // namespace heddle::tokenizer
