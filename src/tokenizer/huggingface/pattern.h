#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "heddle/core/thread_pool.h"

namespace heddle::tokenizer {

/// A string or a regular expression of a tokenizer.json, whose language is Oniguruma's (with Ruby's
/// syntax and Unicode). Finds by PCRE2 what Oniguruma finds.
class Pattern {
 public:
  /// What is found: `text` itself, which is not empty.
  [[nodiscard]] static Pattern of_string(std::string text);
  /// `where` begins the error (kUnsupported) about an expression that the two libraries read
  /// differently or that PCRE2 does not take: "tokenizer.json: normalizer.pattern".
  [[nodiscard]] static Pattern of_expression(std::string_view expression, const std::string& where);
  [[nodiscard]] bool is_string() const { return expression_ == nullptr; }
  ~Pattern();
  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;

  /// Calls part(begin, end, is_match) for the parts of `text` (UTF-8), in order and without gaps:
  /// the leftmost match, what lies before it, the leftmost after it, and so on. Parts that do not
  /// match are not empty. Error(kUnsupported) where an expression takes far more steps than the
  /// text has characters.
  void split(std::string_view text, FunctionRef<void(size_t, size_t, bool)> part) const;

 private:
  struct Expression;
  Pattern(std::string text, std::unique_ptr<const Expression> expression);

  std::string text_;  // of an expression: what it is in the file
  std::unique_ptr<const Expression> expression_;
};

/// `expression` in PCRE2's language. Errors as Pattern::of_expression.
[[nodiscard]] std::string to_pcre2(std::string_view expression, const std::string& where);

}  // namespace heddle::tokenizer
