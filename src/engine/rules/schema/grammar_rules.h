#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/rules/schema/char_set.h"

namespace heddle::grammar {

/// A grammar as it is made, rule by rule.
class GrammarRules {
 public:
  using Rule = int32_t;
  /// A rule, or a piece of EBNF that stands for some text.
  struct Symbol {
    Symbol(Rule of_rule) : rule(of_rule) {}
    Symbol(Rule of_rule, std::string repeat) : rule(of_rule), text(std::move(repeat)) {}
    Symbol(std::string of_text) : text(std::move(of_text)) {}
    Symbol(const char* of_text) : text(of_text) {}
    Rule rule = -1;
    std::string text{};  // of a rule: how often it is repeated, "{2,5}"
  };
  using Sequence = std::vector<Symbol>;

  /// A rule that derives nothing as yet. Throws Error past a bound of them all.
  [[nodiscard]] Rule make();
  void add(Rule rule, Sequence alternative);
  [[nodiscard]] Rule make(std::vector<Sequence> alternatives);
  /// What it derives has at most so many characters. The rule can end after any character, or when
  /// one that has begun is whole.
  void bound(Rule rule, int64_t max_chars);

  /// A circle of rules that derive one another without any text between them; empty: there is
  /// none.
  [[nodiscard]] std::vector<Rule> find_circle() const;
  /// Whether each rule derives a text that ends.
  [[nodiscard]] std::vector<bool> find_finite() const;
  /// A rule that keeps this one from having such a text; -1: it has no alternatives.
  [[nodiscard]] Rule find_endless(Rule rule, const std::vector<bool>& is_finite) const;
  /// The EBNF, without what derives nothing. Throws Error where it is too long.
  [[nodiscard]] std::string text(Rule root) const;

 private:
  struct Body {
    std::vector<Sequence> alternatives{};
    int64_t max_chars = -1;
  };
  std::vector<Body> rules_;
  size_t num_symbols_ = 0, num_bytes_ = 0;
};

/// EBNF of a text, of one character of a set.
[[nodiscard]] std::string literal(std::string_view text);
[[nodiscard]] std::string class_of(const CharSet& set);

}  // namespace heddle::grammar
