#include "engine/rules/schema/grammar_rules.h"

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <utility>

#include "heddle/core/error.h"

namespace heddle::grammar {
namespace {

constexpr size_t kMaxRules = 20'000, kMaxSymbols = 200'000, kMaxText = size_t{8} << 20;
constexpr const char* kTooLong = "the schema is too complex: its grammar has more than 8 MiB";

std::string name_of(GrammarRules::Rule rule) {
  std::string name = std::to_string(rule);
  name.insert(name.begin(), 'r');
  return name;
}

std::string escaped(uint32_t character) {
  char text[16];
  (void)std::snprintf(text, sizeof(text), "\\U%08x", character);
  return text;
}

}  // namespace

GrammarRules::Rule GrammarRules::make() {
  HEDDLE_CHECK(rules_.size() < kMaxRules, "the schema is too complex: it takes more than ",
               kMaxRules, " rules of a grammar");
  rules_.emplace_back();
  return static_cast<Rule>(rules_.size() - 1);
}

void GrammarRules::add(Rule rule, Sequence alternative) {
  num_symbols_ += 1 + alternative.size();
  for (const Symbol& symbol : alternative) num_bytes_ += symbol.text.size();
  HEDDLE_CHECK(num_bytes_ <= kMaxText, kTooLong);
  HEDDLE_CHECK(num_symbols_ <= kMaxSymbols, "the schema is too complex: it takes more than ",
               kMaxSymbols, " symbols of a grammar");
  rules_[static_cast<size_t>(rule)].alternatives.push_back(std::move(alternative));
}

GrammarRules::Rule GrammarRules::make(std::vector<Sequence> alternatives) {
  const Rule rule = make();
  for (Sequence& alternative : alternatives) add(rule, std::move(alternative));
  return rule;
}

void GrammarRules::bound(Rule rule, int64_t max_chars) {
  rules_[static_cast<size_t>(rule)].max_chars = max_chars;
}

std::vector<GrammarRules::Rule> GrammarRules::find_circle() const {
  enum class Mark : uint8_t { kNew, kOpen, kDone };
  std::vector<Mark> marks(rules_.size(), Mark::kNew);
  std::vector<std::pair<size_t, size_t>> path;  // a rule, and its next alternative
  for (size_t start = 0; start < rules_.size(); ++start) {
    if (marks[start] != Mark::kNew) continue;
    path.emplace_back(start, 0);
    marks[start] = Mark::kOpen;
    while (!path.empty()) {
      auto& [rule, next] = path.back();
      if (next == rules_[rule].alternatives.size()) {
        marks[rule] = Mark::kDone;
        path.pop_back();
        continue;
      }
      const Sequence& alternative = rules_[rule].alternatives[next++];
      if (alternative.empty() || alternative.front().rule < 0) continue;
      const auto first = static_cast<size_t>(alternative.front().rule);
      if (marks[first] == Mark::kOpen) {
        std::vector<Rule> circle;
        for (size_t i = path.size(); i-- > 0;) {
          circle.push_back(static_cast<Rule>(path[i].first));
          if (path[i].first == first) return circle;
        }
      }
      if (marks[first] == Mark::kNew) {
        marks[first] = Mark::kOpen;
        path.emplace_back(first, 0);
      }
    }
  }
  return {};
}

GrammarRules::Rule GrammarRules::find_endless(Rule rule, const std::vector<bool>& is_finite) const {
  for (const Sequence& alternative : rules_[static_cast<size_t>(rule)].alternatives) {
    for (const Symbol& symbol : alternative) {
      if (symbol.rule >= 0 && !is_finite[static_cast<size_t>(symbol.rule)]) return symbol.rule;
    }
  }
  return -1;
}

std::vector<bool> GrammarRules::find_finite() const {
  struct Use {
    size_t rule, alternative;
  };
  std::vector<std::vector<Use>> uses(rules_.size());
  std::vector<std::vector<size_t>> num_missing(rules_.size());
  std::vector<bool> is_finite(rules_.size());
  std::vector<size_t> found;
  const auto find = [&](size_t rule) {
    if (is_finite[rule]) return;
    is_finite[rule] = true;
    found.push_back(rule);
  };
  for (size_t rule = 0; rule < rules_.size(); ++rule) {
    for (size_t i = 0; i < rules_[rule].alternatives.size(); ++i) {
      size_t count = 0;
      for (const Symbol& symbol : rules_[rule].alternatives[i]) {
        if (symbol.rule < 0) continue;
        uses[static_cast<size_t>(symbol.rule)].push_back({rule, i});
        ++count;
      }
      num_missing[rule].push_back(count);
      if (count == 0) find(rule);
    }
  }
  while (!found.empty()) {
    const size_t rule = found.back();
    found.pop_back();
    for (const Use& use : uses[rule]) {
      if (--num_missing[use.rule][use.alternative] == 0) find(use.rule);
    }
  }
  return is_finite;
}

std::string GrammarRules::text(Rule root) const {
  const std::vector<bool> is_finite = find_finite();
  const auto is_whole = [&](const Sequence& alternative) {
    return std::ranges::all_of(alternative, [&](const Symbol& symbol) {
      return symbol.rule < 0 || is_finite[static_cast<size_t>(symbol.rule)];
    });
  };
  std::string text = "root ::= " + name_of(root) + "\n";
  for (size_t rule = 0; rule < rules_.size(); ++rule) {
    if (!is_finite[rule]) continue;
    text += name_of(static_cast<Rule>(rule));
    const Body& body = rules_[rule];
    if (body.max_chars >= 0) text += "[max_chars=" + std::to_string(body.max_chars) + "]";
    const char* between = " ::=";
    for (const Sequence& alternative : body.alternatives) {
      if (!is_whole(alternative)) continue;
      text += between;
      if (alternative.empty()) text += " \"\"";
      for (const Symbol& symbol : alternative) {
        text += ' ';
        if (symbol.rule >= 0) text += name_of(symbol.rule);
        text += symbol.text;
      }
      between = " |";
    }
    text += '\n';
    HEDDLE_CHECK(text.size() <= kMaxText, kTooLong);
  }
  return text;
}

std::string literal(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + '"';
}

std::string class_of(const CharSet& set) {
  std::string text = "[";
  for (const auto& [first, last] : set.ranges()) {
    text += escaped(first);
    if (last != first) text += '-' + escaped(last);
  }
  return text + ']';
}

}  // namespace heddle::grammar
