// Elements of structural tags, as xgrammar reads them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "answers/answer_style.h"
#include "files/json_value.h"

namespace heddle::answers {

/// A tool as the grammar needs it.
struct GrammarTool {
  std::string name;
  files::Json schema = true;  // of an object; true: of any
  std::optional<bool> strict{};
};

/// JSON that the schema describes; true: any object.
[[nodiscard]] files::Json json_schema_tag(const files::Json& schema);

/// One of the texts.
[[nodiscard]] files::Json choice_tag(const std::vector<std::string>& choices);

/// Calls, at least one, and nothing else.
[[nodiscard]] files::Json calls_alone(ToolFormat format, const std::vector<GrammarTool>& tools,
                                      bool is_single);

/// Text with calls, or without: what begins like a call is one. Forms without marks stand alone.
[[nodiscard]] files::Json calls_in_text(ToolFormat format, const std::vector<GrammarTool>& tools,
                                        bool is_single);

/// A grammar in EBNF of now(zone="UTC"), whose root is calls with `separator`.
[[nodiscard]] std::string python_grammar(const std::vector<GrammarTool>& tools,
                                         std::string_view separator, bool is_single);

}  // namespace heddle::answers
