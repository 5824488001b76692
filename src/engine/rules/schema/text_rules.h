#pragma once

#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "engine/rules/schema/grammar_rules.h"
#include "engine/rules/schema/text_automaton.h"
#include "engine/rules/schema/text_pattern.h"

namespace heddle::grammar {

/// Strings of JSON whose texts patterns describe. A rule stands for what may follow at a place of a
/// pattern, up to the closing quote: so the tokens that may come next are known of each when it is
/// compiled, also those that pass several characters.
class TextRules {
 public:
  explicit TextRules(GrammarRules& rules) : rules_(rules) {}

  /// The string after its opening quote. Throws Error where it takes too many rules.
  [[nodiscard]] GrammarRules::Rule rest_of(const TextPattern& pattern);
  [[nodiscard]] GrammarRules::Rule rest_of(const TextAutomaton& automaton);
  /// The rest of a string without escapes that differs from all `names` in its first four
  /// characters.
  [[nodiscard]] GrammarRules::Rule rest_of_other_names(const std::vector<std::string>& names);

 private:
  using Rule = GrammarRules::Rule;
  [[nodiscard]] Rule end();
  [[nodiscard]] Rule build(const TextPattern& pattern, Rule next);
  [[nodiscard]] Rule repeat(const TextPattern& pattern, Rule next);
  [[nodiscard]] Rule character(const CharSet& set, Rule next, Rule otherwise);
  [[nodiscard]] Rule characters(const CharSet& set, Rule next);
  [[nodiscard]] Rule sequence(std::span<const TextPattern> parts, Rule next);
  [[nodiscard]] Rule counted(std::span<const TextPattern> before, const TextPattern& repeat,
                             Rule next);
  [[nodiscard]] size_t id_of(const CharSet& set);

  /// A set as strings of JSON have it.
  struct Written {
    std::string raw;                   // the class of characters that stand for themselves, or ""
    std::vector<std::string> escapes;  // EBNF of the others
  };
  GrammarRules& rules_;
  Rule end_ = -1;
  std::map<std::string, size_t> ids_{};  // by class
  std::vector<Written> sets_{};
  std::map<std::tuple<size_t, Rule, Rule>, Rule> made_{};
};

}  // namespace heddle::grammar
