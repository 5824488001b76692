// Answers to a schema, as the grammar takes them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "heddle/core/error.h"

#include "engine/rules/grammar/grammar_library.h"
#include "engine/rules/schema/schema_grammar.h"

namespace heddle::grammar::testing {

/// A vocabulary of all bytes; 256 ends an answer.
inline std::shared_ptr<const TokenSet> byte_tokens() {
  TokenBytes tokens{.end_tokens = {256}};
  for (int byte = 0; byte < 256; ++byte) tokens.tokens.emplace_back(1, static_cast<char>(byte));
  tokens.tokens.emplace_back();
  return make_token_set(std::move(tokens));
}

inline std::shared_ptr<const CompiledFormat> compiled(const AnswerFormat& format) {
  static const std::shared_ptr<const TokenSet> tokens = byte_tokens();
  return compile(*tokens, without_schemas(format));
}

inline std::shared_ptr<const CompiledFormat> compiled(const std::string& schema) {
  return compiled(AnswerFormat{.kind = AnswerFormat::Kind::kJsonSchema, .source = schema});
}

inline bool takes(const CompiledFormat& format, const std::string& answer) {
  const std::unique_ptr<Matcher> matcher = format.matcher();
  return matcher->accept_text(answer) && matcher->is_complete();
}

/// What a schema is refused with; "": it is not.
inline std::string refusal(const std::string& schema) {
  try {
    (void)schema_grammar(schema);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace heddle::grammar::testing
