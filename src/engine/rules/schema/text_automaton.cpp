#include "engine/rules/schema/text_automaton.h"

#include <map>

namespace heddle::grammar {
namespace {

constexpr size_t kMaxStates = 5000;

/// Makes states from the end of a pattern to its beginning.
class AutomatonBuilder {
 public:
  TextAutomaton build(const TextPattern& pattern) {
    const size_t end = make();
    result_.start = build(pattern, end);
    return std::move(result_);
  }

 private:
  size_t make() {
    if (result_.edges.size() == kMaxStates) throw PatternFault("too many parts");
    result_.edges.emplace_back();
    return result_.edges.size() - 1;
  }
  size_t make(const CharSet& set, size_t to) {
    const size_t state = make();
    result_.edges[state].push_back({set, to});
    return state;
  }

  size_t build(const TextPattern& pattern, size_t next) {
    using Kind = TextPattern::Kind;
    switch (pattern.kind) {
      case Kind::kClass: return make(pattern.set, next);
      case Kind::kRepeat: return repeat(pattern, next);
      case Kind::kSequence:
        for (auto part = pattern.parts.rbegin(); part != pattern.parts.rend(); ++part) {
          next = build(*part, next);
        }
        return next;
      case Kind::kAlternatives: break;
    }
    const size_t state = make();
    for (const TextPattern& part : pattern.parts) {
      const size_t of_part = build(part, next);
      result_.edges[state].push_back({{}, of_part});
    }
    return state;
  }

  size_t repeat(const TextPattern& pattern, size_t next) {
    const TextPattern& given = pattern.parts.front();
    const bool may_be_empty = given.shortest() == 0;
    const TextPattern part = may_be_empty ? without_empty(given) : given;
    if (part.longest() == 0 || pattern.max == 0) return next;
    const int64_t min = may_be_empty ? 0 : pattern.min;
    size_t state = next;
    if (pattern.max == TextPattern::kNoEnd) {
      state = make({}, next);
      const size_t of_part = build(part, state);
      result_.edges[state].push_back({{}, of_part});
    } else {
      for (int64_t i = min; i < pattern.max; ++i) {
        const size_t of_part = build(part, state);
        state = make({}, next);
        result_.edges[state].push_back({{}, of_part});
      }
    }
    for (int64_t i = 0; i < min; ++i) state = build(part, state);
    return state;
  }

  TextAutomaton result_{};
};

}  // namespace

TextAutomaton automaton_of(const TextPattern& pattern) { return AutomatonBuilder().build(pattern); }

TextAutomaton intersection_of(const TextAutomaton& a, const TextAutomaton& b) {
  using Pair = std::pair<size_t, size_t>;
  TextAutomaton both;
  std::map<Pair, size_t> states{{{0, 0}, 0}};
  std::vector<Pair> pairs{{0, 0}};
  both.edges.emplace_back();
  const auto state_of = [&](const Pair& pair) {
    const auto [place, is_new] = states.emplace(pair, pairs.size());
    if (is_new) {
      if (pairs.size() == kMaxStates) throw PatternFault("too many parts");
      pairs.push_back(pair);
      both.edges.emplace_back();
    }
    return place->second;
  };
  both.start = state_of({a.start, b.start});
  for (size_t state = 1; state < pairs.size(); ++state) {
    const auto [of_a, of_b] = pairs[state];
    for (const auto& edge : a.edges[of_a]) {
      if (edge.set.empty()) {
        const size_t to = state_of({edge.to, of_b});
        both.edges[state].push_back({{}, to});
        continue;
      }
      for (const auto& other : b.edges[of_b]) {
        if (other.set.empty()) continue;
        CharSet common = edge.set.within(other.set);
        if (common.empty()) continue;
        const size_t to = state_of({edge.to, other.to});
        both.edges[state].push_back({std::move(common), to});
      }
    }
    for (const auto& edge : b.edges[of_b]) {
      if (!edge.set.empty()) continue;
      const size_t to = state_of({of_a, edge.to});
      both.edges[state].push_back({{}, to});
    }
  }
  return both;
}

}  // namespace heddle::grammar
