// What is not held is refused, with its place; what is hostile is refused soon.
#include <chrono>
#include <gmock/gmock.h>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/rules/schema/test/schema_answers.h"

namespace heddle::grammar {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Part of the refusal, and a schema.
using Refused = std::vector<std::pair<std::string, std::string>>;

void expect_refused(const Refused& cases) {
  for (const auto& [words, schema] : cases) {
    EXPECT_THAT(testing::refusal(schema), HasSubstr(words)) << schema;
  }
}

TEST(SchemaRefusalsTest, KeywordsThatAreNotHeld) {
  for (const std::string keyword :
       {"not", "if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies",
        "contains", "minContains", "maxContains", "additionalItems", "$anchor", "$dynamicRef",
        "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor", "$vocabulary", "foo"}) {
    const std::string schema =
        R"({"type":"object","properties":{"a":{"type":"array",")" + keyword + R"(":{}}}})";
    EXPECT_THAT(testing::refusal(schema),
                HasSubstr("schema's #/properties/a/" + keyword + " is no"))
        << schema;
  }
}

TEST(SchemaRefusalsTest, PlacesAndWords) {
  expect_refused(
      {{"the schema's #/anyOf/1/items/uniqueItems is not supported",
        R"({"anyOf":[{"type":"null"},{"type":"array","items":{"type":"array","uniqueItems":true}}]})"},
       {"the schema's #/$defs/a~1b/minlength is no keyword that is supported; is it \"minLength\"?",
        R"({"$ref":"#/$defs/a~1b","$defs":{"a/b":{"type":"string","minlength":1}}})"},
       {"#/type is \"strin\", expected null, boolean", R"({"type":"strin"})"},
       {"#/type is without a type", R"({"type":[]})"},
       {"#/minLength is not supported without \"type\"", R"({"minLength":2})"},
       {"#/minLength is -1, expected an integer", R"({"type":"string","minLength":-1})"},
       {"#/maxItems is 1.5, expected an integer", R"({"type":"array","maxItems":1.5})"},
       {"#/minLength is above maxLength", R"({"type":"string","minLength":3,"maxLength":2})"},
       {"#/minItems is above maxItems", R"({"type":"array","minItems":3,"maxItems":2})"},
       {"#/properties is no object of schemas", R"({"type":"object","properties":[]})"},
       {"#/properties/a is a string, expected a schema",
        R"({"type":"object","properties":{"a":"integer"}})"},
       {"#/required is not of names alone", R"({"type":"object","required":[1]})"},
       {"#/required is not supported with 'z', which is none of the properties",
        R"({"type":"object","properties":{"a":{}},"required":["z"]})"},
       {"#/items is an array: say prefixItems", R"({"type":"array","items":[{}]})"},
       {"#/nullable is not supported: say", R"({"type":"string","nullable":true})"},
       {"#/properties/a/$id is not supported",
        R"({"type":"object","properties":{"a":{"$id":"b"}}})"},
       {"given twice", R"({"type":"string","type":"null"})"},
       {"parse error", "{"},
       {"# is an integer, expected a schema", "1"}});
}

TEST(SchemaRefusalsTest, Combinations) {
  expect_refused(
      {{"#/enum is no array", R"({"enum":[]})"},
       {"#/enum is without a value of the type", R"({"type":"integer","enum":["a"]})"},
       {"#/const is without a value of the type", R"({"type":"integer","const":"a"})"},
       {"#/enum is not supported together with \"minLength\"", R"({"enum":["a"],"minLength":1})"},
       {"#/enum is not supported with numbers that 64 bits do not hold",
        R"({"enum":[123456789012345678901234567890]})"},
       {"#/anyOf is no array", R"({"anyOf":[]})"},
       {"#/anyOf is not supported together with \"properties\"",
        R"({"type":"object","properties":{"a":{}},"anyOf":[{"required":["a"]}]})"},
       {"#/oneOf is not supported where a value may fit two of its schemas, here 0 and 1",
        R"({"oneOf":[{"type":"integer"},{"type":"number"}]})"},
       {"oneOf", R"({"oneOf":[{"type":"string"},{"enum":["a"]}]})"},
       {"oneOf", R"({"oneOf":[{"properties":{"a":{}}},{"properties":{"b":{}}}]})"},
       {"oneOf", R"({"oneOf":[{"properties":{"a":{}},"required":["a"]},{"properties":{"b":{}}}]})"},
       {"oneOf", R"({"oneOf":[{"const":1},{"const":1.0}]})"},
       {"#/allOf is not supported with two different \"minimum\"",
        R"({"allOf":[{"type":"integer","minimum":0},{"minimum":3}]})"},
       {"#/allOf is not supported where one of its schemas is closed",
        R"({"allOf":[{"properties":{"a":{}},"additionalProperties":false},{"properties":{"b":{}}}]})"},
       {"#/$ref is \"http://127.0.0.1/x\", which names no part",
        R"({"$ref":"http://127.0.0.1/x"})"},
       {"#/$ref is \"#/$defs/none\"", R"({"$ref":"#/$defs/none"})"},
       {"#/$ref is \"#here\"", R"({"$ref":"#here"})"},
       {"#/$ref is not supported together with \"minimum\"",
        R"({"$ref":"#/$defs/x","minimum":5,"$defs":{"x":{"type":"integer"}}})"},
       {"# is not supported: its $ref leads back to it", R"({"$ref":"#"})"},
       {"its $ref leads back to it",
        R"({"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}})"},
       {"its $ref leads back to it",
        R"({"$ref":"#/$defs/a","$defs":{"a":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/a"}]}}})"},
       {"allOf is not supported: it leads back", R"({"allOf":[{"$ref":"#"}]})"}});
}

TEST(SchemaRefusalsTest, StringsAndNumbers) {
  Refused cases;
  for (const std::string pattern :
       {"^(?!a).*$", "(?<=a)b", "(?i)a",      "a^b",        "a$b",        "(^a|b)",
        "(a",        "a)",      R"((a)\\1)",  R"(\\ba)",    R"(\\p{L})",  R"(\\Z)",
        "[]",        "[z-a]",   "a{2,1}",     "a{,2}",      "*",          "a**",
        "a++",       "[a",      R"(\\ud800)", R"([\\d-x])", "a{9999999}", R"(\\)"}) {
    cases.emplace_back("#/pattern is not supported: it has ",
                       R"({"type":"string","pattern":")" + pattern + "\"}");
  }
  expect_refused(cases);
  expect_refused(
      {{"#/format is 'nothing', which is not supported: expected date, time",
        R"({"type":"string","format":"nothing"})"},
       {"#/format is not supported together with \"maxLength\": both have too many parts",
        R"({"type":"string","format":"email","maxLength":2000})"},
       {"#/format allows no value", R"({"type":"string","format":"date","pattern":"a"})"},
       {"#/pattern allows no value", R"({"type":"string","pattern":"^ab*c*$","maxLength":0})"},
       {"#/pattern allows no value", R"({"type":"string","pattern":"^\\d?$","minLength":4})"},
       {"#/multipleOf is not supported", R"({"type":"number","multipleOf":0.5})"},
       {"#/multipleOf is not supported together with \"minimum\" alone",
        R"({"type":"integer","multipleOf":5,"minimum":7})"},
       {"#/minimum is above all that", R"({"type":"integer","minimum":5,"maximum":4})"},
       {"#/exclusiveMinimum is a bool, expected a number",
        R"({"type":"integer","exclusiveMinimum":true})"},
       {"#/minimum is not supported with more than 15",
        R"({"type":"number","minimum":1e-9,"maximum":2e-9})"},
       {"#/maximum is not supported with more than 15", R"({"type":"number","maximum":1e22})"},
       {"#/minimum is not supported: the schema's range has no number",
        R"({"type":"number","minimum":2,"exclusiveMaximum":2})"}});
}

TEST(SchemaRefusalsTest, Objects) {
  expect_refused(
      {{"#/patternProperties is not supported with more than one",
        R"({"type":"object","patternProperties":{"^a$":{},"^b$":{}}})"},
       {"#/patternProperties is not supported together with \"properties\"",
        R"({"type":"object","patternProperties":{"^a$":{}},"properties":{"b":{}}})"},
       {"#/propertyNames is not supported together with \"properties\"",
        R"({"type":"object","propertyNames":{"maxLength":2},"properties":{"b":{}},)"
        R"("additionalProperties":true})"},
       {"#/minProperties is not supported above 1",
        R"({"type":"object","additionalProperties":{},"minProperties":2})"},
       {"#/minProperties is above the number",
        R"({"type":"object","properties":{"a":{}},"minProperties":2})"},
       {"#/maxProperties is below the number of required",
        R"({"type":"object","properties":{"a":{}},"required":["a"],"maxProperties":0})"}});
}

TEST(SchemaRefusalsTest, WhatHasNoFiniteAnswer) {
  expect_refused({{"# allows no value that ends",
                   R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})"},
                  {"#/properties/a allows no value that ends",
                   R"({"type":"object","properties":{"a":false},"required":["a"]})"},
                  {"# allows no value", "false"},
                  {"#/minItems is above the number of elements",
                   R"({"type":"array","items":false,"minItems":1})"}});
}

/// Schemas made to take long: each ends soon, and takes no stack.
TEST(SchemaRefusalsTest, HostileSchemas) {
  std::string deep(100'000, '['), chain = R"({"$ref":"#/$defs/0","$defs":{)";
  for (int i = 0; i < 9000; ++i) {
    chain += '"' + std::to_string(i) + R"(":{"$ref":"#/$defs/)" + std::to_string(i + 1) + "\"},";
  }
  chain += R"("9000":{"type":"null"}}})";
  std::string doubled = R"({"$ref":"#/$defs/0","$defs":{)";
  for (int i = 0; i < 14; ++i) {
    const std::string next = R"({"$ref":"#/$defs/)" + std::to_string(i + 1) + "\"}";
    doubled += '"' + std::to_string(i) + R"(":{"allOf":[)" + next + ',' + next + ',' + next + "]},";
  }
  doubled += R"("14":{"type":"null"}}})";
  std::string classes = R"({"type":"string","pattern":"^)";
  for (int i = 0; i < 60'000; ++i) classes += "[a-z]{1,9}";
  std::string optional_parts = R"({"type":"string","pattern":"^()", wide = "[";
  for (int i = 0; i < 200'000; ++i) optional_parts += "a?";
  for (char letter = '!'; letter < 'Z'; letter += 2) wide += letter;
  for (int i = 0; i < 12; ++i) wide += wide.substr(1);
  const std::string circle =
      R"({"allOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"}],"$defs":{)"
      R"("a":{"properties":{"c":{"allOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"}]}}},)"
      R"("b":{"properties":{"c":{"$ref":"#/$defs/b"}}}}})";
  for (const std::string& schema :
       {deep, chain, doubled, classes + "$\"}", circle, optional_parts + ")*$\"}",
        R"({"type":"string","pattern":"^)" + wide + "]{20000}$\"}",
        std::string(R"({"type":"string","pattern":"^((a{0,100}){0,100}){0,100}$"})"),
        std::string(R"({"type":"string","minLength":1000000})"),
        std::string(R"({"type":"object","additionalProperties":{},"maxProperties":1000000})")}) {
    const auto begin = std::chrono::steady_clock::now();
    (void)testing::refusal(schema);
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(time.count(), 10) << schema.substr(0, 100);
  }
  EXPECT_THAT(testing::refusal(doubled), HasSubstr("allOf is too complex"));
  EXPECT_THAT(testing::refusal(circle), HasSubstr("too deep"));
  EXPECT_THAT(testing::refusal(R"({"type":"string","minLength":1000000})"),
              HasSubstr("too complex"));
}

}  // namespace
}  // namespace heddle::grammar
