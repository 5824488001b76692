#include "engine/rules/schema/text_rules.h"

#include <algorithm>
#include <map>
#include <utility>

namespace heddle::grammar {
namespace {

using Kind = TextPattern::Kind;

/// Repeats of a character are a rule each up to here: each has a mask of all tokens, which is made
/// when the format is compiled. Above, the grammar library counts, which takes as long for each of
/// the last tokens of an answer that uses its room up.
constexpr int64_t kMaxChain = 48, kMaxOptionalChain = 8;
/// Names that are not those of properties differ from them in the first so many characters: each
/// has a rule with a mask of all tokens.
constexpr size_t kMaxNameDepth = 4;

/// Characters that stand for themselves in a string.
const CharSet kPlain = CharSet({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}}).complement();

/// Letters of the escapes of one letter, and what they stand for.
constexpr std::string_view kLetters = "\"\\bfnrt", kMeanings = "\"\\\b\f\n\r\t";

std::vector<std::string> escapes_of(const CharSet& set) {
  std::vector<CharSet::Range> letters;
  std::vector<std::string> escapes;
  for (size_t i = 0; i < kLetters.size(); ++i) {
    const auto letter = static_cast<uint32_t>(kLetters[i]);
    if (set.has(static_cast<uint32_t>(kMeanings[i]))) letters.push_back({letter, letter});
  }
  const bool is_all = set == CharSet::all();
  if (is_all) letters.push_back({'/', '/'});
  if (!letters.empty()) {
    escapes.push_back(literal("\\") + ' ' + class_of(CharSet(std::move(letters))));
  }
  if (is_all) {
    escapes.push_back(literal("\\u") + " unicode");
    return escapes;
  }
  for (const uint32_t high : {0u, 1u}) {
    std::vector<CharSet::Range> digits;
    for (uint32_t low = 0; low < 16; ++low) {
      const auto digit = static_cast<uint32_t>("0123456789abcdef"[low]);
      const uint32_t control = high * 16 + low;
      const bool has_letter = kMeanings.find(static_cast<char>(control)) != kMeanings.npos;
      if (set.has(control) && !has_letter) digits.push_back({digit, digit});
    }
    if (digits.empty()) continue;
    escapes.push_back(literal(high == 0 ? "\\u000" : "\\u001") + ' ' +
                      class_of(CharSet(std::move(digits))));
  }
  return escapes;
}

/// Whether the grammar library counts the characters of a repeat.
bool is_counted(const TextPattern& pattern) {
  return pattern.kind == Kind::kRepeat && pattern.parts.front().kind == Kind::kClass &&
         pattern.max != TextPattern::kNoEnd && pattern.max > kMaxChain &&
         pattern.max - pattern.min > kMaxOptionalChain;
}

}  // namespace

GrammarRules::Rule TextRules::rest_of(const TextPattern& pattern) { return build(pattern, end()); }

GrammarRules::Rule TextRules::rest_of(const TextAutomaton& automaton) {
  std::vector<Rule> rules{end()};
  while (rules.size() < automaton.edges.size()) rules.push_back(rules_.make());
  for (size_t state = 1; state < rules.size(); ++state) {
    for (const auto& [set, to] : automaton.edges[state]) {
      rules_.add(rules[state], {set.empty() ? rules[to] : character(set, rules[to], -1)});
    }
  }
  return rules[automaton.start];
}

GrammarRules::Rule TextRules::end() {
  if (end_ < 0) end_ = rules_.make({{literal("\"")}});
  return end_;
}

size_t TextRules::id_of(const CharSet& set) {
  const auto [place, is_new] = ids_.emplace(class_of(set), sets_.size());
  if (is_new) {
    const CharSet raw = set.within(kPlain);
    sets_.push_back({raw.empty() ? "" : class_of(raw), escapes_of(set)});
  }
  return place->second;
}

GrammarRules::Rule TextRules::build(const TextPattern& pattern, Rule next) {
  switch (pattern.kind) {
    case Kind::kClass: return character(pattern.set, next, -1);
    case Kind::kRepeat: return repeat(pattern, next);
    case Kind::kSequence: return sequence(pattern.parts, next);
    case Kind::kAlternatives: break;
  }
  std::vector<GrammarRules::Sequence> alternatives;
  for (const TextPattern& part : pattern.parts) alternatives.push_back({build(part, next)});
  return rules_.make(std::move(alternatives));
}

GrammarRules::Rule TextRules::sequence(std::span<const TextPattern> parts, Rule next) {
  while (!parts.empty()) {
    const TextPattern& last = parts.back();
    parts = parts.first(parts.size() - 1);
    if (!is_counted(last)) {
      next = build(last, next);
      continue;
    }
    // Parts of a fixed length count, too: tokens that go from them into what is counted have no
    // place in a mask that is made before.
    size_t num_fixed = 0;
    while (num_fixed < parts.size()) {
      const TextPattern& part = parts[parts.size() - 1 - num_fixed];
      if (part.shortest() != part.longest()) break;
      ++num_fixed;
    }
    next = counted(parts.last(num_fixed), last, next);
    parts = parts.first(parts.size() - num_fixed);
  }
  return next;
}

/// Parts of a fixed length and a repeat, in all of at most so many characters; what the answer has
/// as an escape counts as what it is written with.
GrammarRules::Rule TextRules::counted(std::span<const TextPattern> before,
                                      const TextPattern& repeat, Rule next) {
  const TextPattern& part = repeat.parts.front();
  int64_t max = repeat.max;
  for (const TextPattern& fixed : before) max += fixed.shortest();
  Rule rule = characters(part.set, rules_.make({{}}));
  for (int64_t i = 0; i < repeat.min; ++i) rule = build(part, rule);
  const Rule bounded = rules_.make({{sequence(before, rule)}});
  rules_.bound(bounded, max);
  return rules_.make({{bounded, next}});
}

/// One character of the set, then `next`; or `otherwise`, where that is a rule.
GrammarRules::Rule TextRules::character(const CharSet& set, Rule next, Rule otherwise) {
  const size_t id = id_of(set);
  const auto known = made_.find({id, next, otherwise});
  if (known != made_.end()) return known->second;
  const Rule rule = rules_.make();
  const Written& written = sets_[id];
  if (!written.raw.empty()) rules_.add(rule, {written.raw, next});
  for (const std::string& escape : written.escapes) rules_.add(rule, {escape, next});
  if (otherwise >= 0) rules_.add(rule, {otherwise});
  made_.emplace(std::tuple(id, next, otherwise), rule);
  return rule;
}

/// Any number of characters of the set.
GrammarRules::Rule TextRules::characters(const CharSet& set, Rule next) {
  const size_t id = id_of(set);
  const Rule rule = rules_.make(), rest = rules_.make({{next}});
  const std::string& raw = sets_[id].raw;
  rules_.add(rule,
             raw.empty() ? GrammarRules::Sequence{rest} : GrammarRules::Sequence{raw + '*', rest});
  for (const std::string& escape : sets_[id].escapes) rules_.add(rest, {escape, rule});
  return rule;
}

GrammarRules::Rule TextRules::repeat(const TextPattern& pattern, Rule next) {
  if (is_counted(pattern)) return counted({}, pattern, next);
  const TextPattern& given = pattern.parts.front();
  const bool may_be_empty = given.shortest() == 0;
  const TextPattern part = may_be_empty ? without_empty(given) : given;
  if (part.longest() == 0 || pattern.max == 0) return next;
  const int64_t min = may_be_empty ? 0 : pattern.min;
  Rule rule = next;
  if (pattern.max == TextPattern::kNoEnd) {
    if (part.kind == Kind::kClass) {
      rule = characters(part.set, next);
    } else {
      rule = rules_.make({{next}});
      rules_.add(rule, {build(part, rule)});
    }
  } else if (part.kind == Kind::kClass) {
    for (int64_t i = min; i < pattern.max; ++i) rule = character(part.set, rule, next);
  } else {
    for (int64_t i = min; i < pattern.max; ++i) {
      rule = rules_.make({{build(part, rule)}, {next}});
    }
  }
  for (int64_t i = 0; i < min; ++i) rule = build(part, rule);
  return rule;
}

GrammarRules::Rule TextRules::rest_of_other_names(const std::vector<std::string>& names) {
  struct Node {
    std::map<uint32_t, size_t> children{};
    bool is_name = false;
    bool is_beginning = false;  // of a longer name
  };
  std::vector<Node> nodes(1);  // a tree of the names; children come after their parents
  for (const std::string& name : names) {
    const std::vector<uint32_t> characters = characters_of(name);
    if (!std::ranges::all_of(characters, [](uint32_t c) { return kPlain.has(c); })) continue;
    size_t node = 0;
    for (const uint32_t character :
         std::span(characters).first(std::min(characters.size(), kMaxNameDepth))) {
      const auto [child, is_new] = nodes[node].children.emplace(character, nodes.size());
      node = child->second;
      if (is_new) nodes.emplace_back();
    }
    nodes[node].is_name = true;
    nodes[node].is_beginning |= characters.size() > kMaxNameDepth;
  }
  const Rule any = rules_.make({{class_of(kPlain) + '*', end()}});
  std::vector<Rule> made(nodes.size(), -1);
  for (size_t i = nodes.size(); i-- > 0;) {
    made[i] = rules_.make();
    if (nodes[i].is_beginning) continue;
    CharSet others = kPlain;
    for (const auto& [character, child] : nodes[i].children) {
      const CharSet set({{character, character}});
      others = others.without(set);
      rules_.add(made[i], {class_of(set), made[child]});
    }
    rules_.add(made[i], {class_of(others), any});
    if (!nodes[i].is_name) rules_.add(made[i], {end()});
  }
  return made.front();
}

}  // namespace heddle::grammar
