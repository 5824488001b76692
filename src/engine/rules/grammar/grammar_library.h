// What the engine uses of the library of grammars, which one source alone includes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "heddle/engine/request.h"

namespace heddle::grammar {

/// The tokens of a vocabulary as a grammar reads them.
struct TokenBytes {
  std::vector<std::string> tokens{};  // the bytes of each; empty: never a part of an answer
  std::vector<int32_t> end_tokens{};  // that end an answer; not empty
};

class TokenSet {
 public:
  TokenSet() = default;
  TokenSet(const TokenSet&) = delete;
  TokenSet& operator=(const TokenSet&) = delete;
  virtual ~TokenSet() = default;
};

/// How far an answer has come in its format. One thread uses it at a time.
class Matcher {
 public:
  Matcher() = default;
  Matcher(const Matcher&) = delete;
  Matcher& operator=(const Matcher&) = delete;
  virtual ~Matcher() = default;

  /// The answer's next token; false: the format does not allow it, and nothing has changed.
  [[nodiscard]] virtual bool accept(int32_t token) = 0;
  /// Takes back the tokens that were accepted last; none of them has ended the answer.
  virtual void rewind(int64_t num_tokens) = 0;
  /// Text of the answer, as its tokens would give it.
  [[nodiscard]] virtual bool accept_text(const std::string& text) = 0;
  /// Sets bit t % 32 of word t / 32 for each token t that may come next. All words are written.
  virtual void fill(std::span<int32_t> words) = 0;
  /// Whether the answer may end here.
  [[nodiscard]] virtual bool is_complete() const = 0;
  /// Whether an end token was accepted.
  [[nodiscard]] virtual bool has_ended() const = 0;
};

/// A format for a vocabulary. Immutable, for any number of threads.
class CompiledFormat {
 public:
  CompiledFormat() = default;
  CompiledFormat(const CompiledFormat&) = delete;
  CompiledFormat& operator=(const CompiledFormat&) = delete;
  virtual ~CompiledFormat() = default;

  [[nodiscard]] virtual size_t num_bytes() const = 0;
  [[nodiscard]] virtual std::unique_ptr<Matcher> matcher() const = 0;
};

/// Whether this build has the library; without it the functions below throw kUnsupported.
[[nodiscard]] bool has_library();
[[nodiscard]] std::shared_ptr<const TokenSet> make_token_set(TokenBytes tokens);
/// The format is one of without_schemas (schema_grammar.h): of no kind that is JSON. Throws Error,
/// which says what is wrong where, and LimitPassed.
[[nodiscard]] std::shared_ptr<const CompiledFormat> compile(const TokenSet& token_set,
                                                            const AnswerFormat& format);

}  // namespace heddle::grammar
