#include "request_json/format_fields.h"

#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "request_json/field_error.h"
#include "request_json/ordered_json.h"

namespace heddle::app {
namespace {

using Kind = AnswerFormat::Kind;

std::optional<AnswerFormat> format(const std::string& row) {
  const files::JsonTree tree = parse_ordered_json(row, "row");
  const std::optional<GivenFormat> given = read_format(RowReader(*tree, "row"));
  return given ? std::optional(given->format) : std::nullopt;
}

void expect(const std::string& row, Kind kind, const std::string& source) {
  const std::optional<AnswerFormat> got = format(row);
  ASSERT_TRUE(got) << row;
  EXPECT_EQ(got->kind, kind) << row;
  EXPECT_EQ(got->source, source) << row;
}

/// The field that the error names, and its sentence.
void expect_refused(const std::string& row, const std::string& field, const std::string& sentence) {
  try {
    static_cast<void>(format(row));
    ADD_FAILURE() << row;
  } catch (const FieldError& error) {
    EXPECT_EQ(error.field(), field) << row;
    EXPECT_EQ(std::string(error.what()), "row: " + sentence) << row;
  }
}

TEST(FormatFields, ResponseFormat) {
  EXPECT_FALSE(format("{}"));
  EXPECT_FALSE(format(R"({"response_format": null})"));
  EXPECT_TRUE(format(R"({"response_format": {"type": "text"}})")->is_free());
  expect(R"({"response_format": {"type": "json_object"}})", Kind::kJson, "");
  expect(R"({"response_format": {"type": "json_object", "schema": {"type": "array"}}})",
         Kind::kJsonSchema, R"({"type":"array"})");
  expect(R"({"response_format": {"type": "json_schema", "json_schema": {"name": "a", "strict": true,
            "description": null, "schema": {"b": 1, "a": [2.5]}}}})",
         Kind::kJsonSchema, R"({"b":1,"a":[2.5]})");
  expect(R"({"response_format": {"type": "json_schema", "schema": {}}})", Kind::kJsonSchema, "{}");
  expect(R"({"response_format": {"type": "structural_tag", "format": {"type": "any_text"}}})",
         Kind::kStructuralTag, R"({"type":"structural_tag","format":{"type":"any_text"}})");
}

TEST(FormatFields, OlderStructuralTags) {
  expect(R"({"structural_tag": "{\"structures\": [{\"begin\": \"<a>\", \"schema\": {\"x\": 1},)"
         R"( \"end\": \"</a>\"}], \"triggers\": [\"<a\"]}"})",
         Kind::kStructuralTag,
         R"({"type":"structural_tag","format":{"type":"triggered_tags","triggers":["<a"],)"
         R"("tags":[{"type":"tag","begin":"<a>","content":{"type":"json_schema",)"
         R"("json_schema":{"x":1}},"end":"</a>"}]}})");
}

TEST(FormatFields, OfOtherServers) {
  expect(R"({"structured_outputs": {"json": "{\"type\": \"null\"}"}})", Kind::kJsonSchema,
         R"({"type":"null"})");
  expect(R"({"structured_outputs": {"json_object": true, "json": null, "disable_any_whitespace":
            false}})",
         Kind::kJson, "");
  expect(R"({"structured_outputs": {"regex": "a+"}})", Kind::kRegex, "a+");
  expect(R"({"guided_json": {"type": "null"}})", Kind::kJsonSchema, R"({"type":"null"})");
  expect(R"({"guided_regex": "a+"})", Kind::kRegex, "a+");
  expect(R"({"regex": "a+"})", Kind::kRegex, "a+");
  expect(R"({"json_schema": {}})", Kind::kJsonSchema, "{}");
  expect(R"({"json_schema": "{}"})", Kind::kJsonSchema, "{}");
  EXPECT_EQ(format(R"({"guided_choice": ["a", "b"]})")->choices,
            (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(format(R"({"structured_outputs": {"choice": ["c"]}})")->choices,
            std::vector<std::string>{"c"});
  EXPECT_TRUE(format(R"({"grammar": ""})")->is_free());
}

TEST(FormatFields, GrammarsOfTwoForms) {
  expect(R"({"grammar": "root ::= \"a\""})", Kind::kGrammar, "root ::= \"a\"");
  expect(R"({"ebnf": "# a: b\n root ::= [:]"})", Kind::kGrammar, "# a: b\n root ::= [:]");
  expect(R"({"guided_grammar": "// a ::= b\n?start: \"a\""})", Kind::kLark,
         "// a ::= b\n?start: \"a\"");
  expect(R"({"structured_outputs": {"grammar": "%import common.WS\nTERM.2 : /::=/"}})", Kind::kLark,
         "%import common.WS\nTERM.2 : /::=/");
  expect(R"({"grammar": "nothing"})", Kind::kGrammar, "nothing");
}

TEST(FormatFields, TheFieldIsNamed) {
  const files::JsonTree tree =
      parse_ordered_json(R"({"response_format": {"type": "text"}, "regex": "a"})", "row");
  EXPECT_EQ(read_format(RowReader(*tree, "row"))->field, "regex");
}

TEST(FormatFields, TwoAreRefused) {
  expect_refused(R"({"response_format": {"type": "json_object"}, "regex": "a"})", "regex",
                 "response_format and regex are both given; an answer has one format, leave one of "
                 "them out");
  expect_refused(R"({"structured_outputs": {"json": {}, "choice": ["a"]}})",
                 "structured_outputs.choice",
                 "structured_outputs.json and structured_outputs.choice are both given; an answer "
                 "has one format, leave one of them out");
  EXPECT_EQ(format(R"({"response_format": {"type": "text"}, "regex": "a"})")->kind, Kind::kRegex);
}

TEST(FormatFields, WrongOnesAreNamed) {
  expect_refused(R"({"response_format": 1})", "response_format",
                 "response_format is number, expected an object");
  expect_refused(R"({"response_format": {}})", "response_format",
                 "response_format: field type is missing");
  expect_refused(R"({"response_format": {"type": "jsn"}})", "response_format.type",
                 "response_format.type is \"jsn\", expected \"text\", \"json_object\", "
                 "\"json_schema\" or \"structural_tag\"");
  expect_refused(R"({"response_format": {"type": "json_object", "shema": {}}})",
                 "response_format.shema",
                 "response_format: unknown field \"shema\"; did you mean \"schema\"?");
  expect_refused(R"({"response_format": {"type": "json_schema"}})", "response_format.json_schema",
                 "response_format.json_schema is missing");
  expect_refused(R"({"response_format": {"type": "json_schema", "json_schema": {"schema": 3}}})",
                 "response_format.json_schema.schema",
                 "response_format.json_schema.schema is number, expected an object, or the text of "
                 "one in JSON");
  expect_refused(
      R"({"guided_json": "[]"})", "guided_json",
      "guided_json is the text of array, expected an object, or the text of one in JSON");
  expect_refused(R"({"structured_outputs": {}})", "structured_outputs",
                 "structured_outputs has no format; expected json, regex, choice, grammar, "
                 "json_object or structural_tag");
  expect_refused(R"({"structured_outputs": {"regex": "a", "whitespace_pattern": " "}})",
                 "structured_outputs.whitespace_pattern",
                 "structured_outputs.whitespace_pattern is not supported; leave it out");
  expect_refused(R"({"structured_outputs": {"regex": "a", "disable_any_whitespace": true}})",
                 "structured_outputs.disable_any_whitespace",
                 "structured_outputs.disable_any_whitespace: only false is supported; write it "
                 "into the schema or grammar");
  expect_refused(R"({"guided_choice": []})", "guided_choice",
                 "guided_choice is empty, expected at least one string");
  expect_refused(R"({"guided_choice": [1]})", "guided_choice",
                 "guided_choice holds number, expected strings");
  expect_refused(R"({"guided_regex": ""})", "guided_regex", "guided_regex is empty");
  expect_refused(R"({"grammar": 1})", "grammar", "grammar is number, expected a string");
  expect_refused(R"({"structural_tag": {"type": "a"}})", "structural_tag.type",
                 "structural_tag.type is \"a\", expected \"structural_tag\"");
  expect_refused(R"({"structural_tag": {}})", "structural_tag.structures",
                 "structural_tag.structures is no array of objects");
}

TEST(FormatFields, TextsThatNestDeepAreRefused) {
  const std::string deep(1000, '[');
  EXPECT_THROW(static_cast<void>(format(R"({"guided_json": ")" + deep + "\"}")), FieldError);
}

}  // namespace
}  // namespace heddle::app
