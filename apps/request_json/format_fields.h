#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "heddle/engine/request.h"

#include "request_json/row_reader.h"

namespace heddle::app {

/// The fields that say what the text of an answer must be, as OpenAI, vLLM, SGLang and llama.cpp
/// have them; docs/structured_output.md lists what each may hold.
inline constexpr std::array<std::string_view, 11> kFormatFields = {
    "response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice",
    "guided_grammar",  "json_schema",        "regex",       "ebnf",         "grammar",
    "structural_tag"};

/// A format, and the field that asks for it; empty: all that are there ask for nothing.
struct GivenFormat {
  AnswerFormat format{};
  std::string field{};
};

/// What the fields of kFormatFields ask for, of which one may ask for anything; absent where none
/// of them is there. Throws FieldError. Whether a schema, pattern or grammar is one is for the
/// engine to say.
[[nodiscard]] std::optional<GivenFormat> read_format(const RowReader& row);

/// The format of a field of this name: of "guided_json" a schema, of "response_format" what it is
/// there. Throws FieldError.
[[nodiscard]] AnswerFormat format_of(const std::string& field, const files::Json& value);

/// A grammar of either form: in Lark where its first rule is "name: ...", else in GBNF.
[[nodiscard]] AnswerFormat grammar_format(std::string source);

}  // namespace heddle::app
