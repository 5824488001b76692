#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace heddle::model {

/// Steps that the expressions of one field may take for one module. Its patterns share it, so a
/// field of many expressions costs no more than one.
class MatchSteps {
 public:
  static constexpr uint32_t kMax = 32768;

  [[nodiscard]] uint32_t left() const { return left_; }
  void spend(uint32_t steps) { left_ -= std::min(steps, left_); }

 private:
  uint32_t left_ = kMax;
};

/// A pattern over module names such as "model.layers.3.self_attn.q_proj", as PEFT's configuration
/// holds them: Python's regular expressions, of which PCRE2 understands what is used here. Matching
/// is bounded in time and memory.
class ModulePattern {
 public:
  /// Matches what ends with `key` at the start of a segment: (.*\.)?(key)$ with `key` as part of
  /// that expression.
  [[nodiscard]] static ModulePattern ending(std::string key, const std::string& context);
  /// Matches where the whole name does.
  [[nodiscard]] static ModulePattern whole(const std::string& expression,
                                           const std::string& context);
  /// Matches where `key` and a number are two neighbouring segments, such as "layers" and "3".
  [[nodiscard]] static ModulePattern numbered(const std::string& key, const std::string& context);

  /// Errors of these, an expression that is none and steps used up among them, begin with the
  /// pattern's context.
  [[nodiscard]] bool matches(std::string_view module, MatchSteps& steps) const;
  /// Whether matching runs a regular expression, rather than comparing text.
  [[nodiscard]] bool is_expression() const { return code_ != nullptr; }

 private:
  struct Code;

  ModulePattern(std::string key, std::string context)
      : key_(std::move(key)), context_(std::move(context)) {}
  void compile(const std::string& expression);

  std::string key_, context_;
  // Immutable once compiled, so copies of a pattern share it.
  std::shared_ptr<const Code> code_;
};

}  // namespace heddle::model
