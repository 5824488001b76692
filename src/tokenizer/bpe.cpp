#include "tokenizer/bpe.h"

#include <algorithm>
#include <functional>

namespace heddle::tokenizer {

BytePairEncoder::BytePairEncoder(const std::array<int32_t, 256>& byte_tokens,
                                 std::span<const MergeRule> rules, int32_t vocab_size)
    : byte_tokens_(byte_tokens), rule_begin_(size_t(vocab_size) + 1) {
  std::vector<uint32_t> order(rules.size());  // by left, right and then the latest first
  for (uint32_t rank = 0; rank < rules.size(); ++rank) order[rank] = rank;
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    if (rules[a].left != rules[b].left) return rules[a].left < rules[b].left;
    return rules[a].right != rules[b].right ? rules[a].right < rules[b].right : a > b;
  });
  const MergeRule* last = nullptr;
  for (const uint32_t rank : order) {
    const MergeRule& rule = rules[rank];
    if (last != nullptr && last->left == rule.left && last->right == rule.right) continue;
    rules_.push_back({rule.right, rank, rule.merged});
    ++rule_begin_[size_t(rule.left) + 1];
    last = &rule;
  }
  for (size_t left = 1; left < rule_begin_.size(); ++left) {
    rule_begin_[left] += rule_begin_[left - 1];
  }
}

const BytePairEncoder::Rule* BytePairEncoder::find(int32_t left, int32_t right) const {
  const Rule* const begin = rules_.data() + rule_begin_[size_t(left)];
  const Rule* const end = rules_.data() + rule_begin_[size_t(left) + 1];
  const Rule* const rule = std::lower_bound(
      begin, end, right, [](const Rule& r, int32_t value) { return r.right < value; });
  return rule != end && rule->right == right ? rule : nullptr;
}

/// Looks up what may merge the symbol with its next and queues that.
template <bool kForbids>
void BytePairEncoder::add_candidate(int32_t position, Scratch& scratch) const {
  Scratch::Symbol& symbol = scratch.symbols[size_t(position)];
  symbol.rule =
      symbol.next < 0 ? nullptr : find(symbol.id, scratch.symbols[size_t(symbol.next)].id);
  if (symbol.rule == nullptr) return;
  if constexpr (kForbids) {
    if ((*scratch.forbidden)[size_t(symbol.rule->merged)]) {
      symbol.rule = nullptr;
      return;
    }
  }
  scratch.heap.push_back(uint64_t{symbol.rule->rank} << 32 | uint32_t(position));
}

void BytePairEncoder::encode(std::string_view word, Scratch& scratch,
                             std::vector<int32_t>& ids) const {
  if (word.size() == 1) {  // a digit, a sign or a space as a rule
    const int32_t id = byte_tokens_[static_cast<uint8_t>(word.front())];
    if (id >= 0) ids.push_back(id);
    return;
  }
  for (const char c : word) {
    const int32_t id = byte_tokens_[static_cast<uint8_t>(c)];
    if (id >= 0) scratch.add(id);
  }
  merge(scratch, ids);
}

void BytePairEncoder::merge(Scratch& scratch, std::vector<int32_t>& ids) const {
  if (scratch.forbidden == nullptr) {
    merge_symbols<false>(scratch, ids);
  } else {
    merge_symbols<true>(scratch, ids);
  }
}

template <bool kForbids>
void BytePairEncoder::merge_symbols(Scratch& scratch, std::vector<int32_t>& ids) const {
  std::vector<Scratch::Symbol>& symbols = scratch.symbols;
  std::vector<uint64_t>& heap = scratch.heap;
  heap.clear();
  if (symbols.empty()) return;
  symbols.back().next = -1;
  for (size_t i = 0; i + 1 < symbols.size(); ++i) add_candidate<kForbids>(int32_t(i), scratch);
  std::make_heap(heap.begin(), heap.end(), std::greater<>());

  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const auto rank = static_cast<uint32_t>(heap.back() >> 32);
    const auto position = static_cast<int32_t>(heap.back() & 0xFFFFFFFFu);
    heap.pop_back();
    Scratch::Symbol& left = symbols[size_t(position)];
    if (left.rule == nullptr || left.rule->rank != rank)
      continue;  // it or its next has merged since

    Scratch::Symbol& right = symbols[size_t(left.next)];
    left.id = left.rule->merged;
    left.next = right.next;
    right.rule = nullptr;
    if (left.next >= 0) symbols[size_t(left.next)].previous = position;
    for (const int32_t changed : {position, left.previous}) {
      const size_t queued = heap.size();
      if (changed >= 0) add_candidate<kForbids>(changed, scratch);
      if (heap.size() > queued) std::push_heap(heap.begin(), heap.end(), std::greater<>());
    }
  }
  for (int32_t i = 0; i >= 0; i = symbols[size_t(i)].next) ids.push_back(symbols[size_t(i)].id);
  symbols.clear();
}

}  // namespace heddle::tokenizer
