#pragma once

#include <string>
#include <string_view>

#include "heddle/engine/request.h"

namespace heddle::grammar {

/// A grammar in EBNF, whose rule "root" derives the JSON texts of a schema's values, and nothing
/// else: docs/structured_output_schemas.md says of each keyword what becomes of it. In time in
/// proportion to the schema, but for references and allOf, which are bounded. Throws Error, which
/// names the place in the schema.
[[nodiscard]] std::string schema_grammar(std::string_view schema);

/// The format with grammars in place of all its schemas, also those in a structural tag, and of
/// kJson.
[[nodiscard]] AnswerFormat without_schemas(const AnswerFormat& format);

}  // namespace heddle::grammar
