// Of each keyword: answers that its schema allows and such that it does not.
#include "engine/rules/schema/schema_grammar.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/rules/schema/test/schema_answers.h"

namespace heddle::grammar {
namespace {

struct Answers {
  std::string schema;
  std::vector<std::string> right, wrong;
};

void expect(const std::vector<Answers>& cases) {
  for (const Answers& each : cases) {
    std::shared_ptr<const CompiledFormat> format;
    ASSERT_NO_THROW(format = testing::compiled(each.schema)) << each.schema;
    for (const std::string& answer : each.right) {
      EXPECT_TRUE(testing::takes(*format, answer)) << each.schema << "\n  " << answer;
    }
    for (const std::string& answer : each.wrong) {
      EXPECT_FALSE(testing::takes(*format, answer)) << each.schema << "\n  " << answer;
    }
  }
}

class SchemaGrammarTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_library()) GTEST_SKIP() << "built without structured output";
  }
};

TEST_F(SchemaGrammarTest, Types) {
  expect({{R"({"type":"null"})", {"null"}, {"", "nul", "0", " null", "null "}},
          {R"({"type":"boolean"})", {"true", "false"}, {"\"true\"", "1"}},
          {R"({"type":"integer"})",
           {"0", "-1", "12", "999999999999999999"},
           {"1.0", "01", "-0", "", "-", "1e3", "1000000000000000000"}},
          {R"({"type":"number"})",
           {"0", "-0", "1.5", "-2.25e+10", "1E5", "0.1"},
           {".5", "1.", "01", "1e", "1e999", "+1"}},
          {R"({"type":"string"})",
           {"\"\"", "\"a\\n\\u00e9\\\"\"", "\"\xC3\xA9\"", R"("\ud83d\ude00")"},
           {"\"", "\"a", "\"\t\"", "\"\x01\"", R"("\x")", R"("\ud800")", R"("\ud800a")",
            R"("\udc00")", "\"\xED\xA0\x80\"", "\"\xC0\x80\"", "\"a\"b"}},
          {R"({"type":"array"})", {"[]", "[ ]", "[1, \"a\",[]]"}, {"[1,]", "[,1]", "[1 2]"}},
          {R"({"type":"object"})",
           {"{}", "{ }", R"({"a":1})", R"({"a" : {"b":[]} , "c":null})"},
           {R"({"a"})", R"({"a":1,})", R"({a:1})"}},
          {R"({"type":["string","null"]})", {"null", "\"a\""}, {"1"}},
          {R"({"type":["string","null","integer"],"maxLength":2,"minimum":3})",
           {"null", "\"ab\"", "3"},
           {"3.5", "2", "\"abc\"", "true"}},
          {"true", {"1", "null", "[{}]"}, {"", "x"}},
          {"{}", {"1", "null", "[{}]"}, {"", "x"}},
          {R"({"type":"boolean","minimum":5,"maxLength":1,"required":["a"],"items":false})",
           {"true"},
           {"1"}}});
}

TEST_F(SchemaGrammarTest, Blanks) {
  const std::string schema = R"({"type":"object","properties":{"a":{"type":"array"}}})";
  const std::string blanks(32, ' ');
  expect({{schema,
           {R"({"a":[]})", "{\n  \"a\": [\n    1,\n    2\n  ]\n}", "{" + blanks + "}",
            "{\"a\"" + blanks + ":" + blanks + "[]" + blanks + "}"},
           {"{" + blanks + " }", " {}", "{} "}}});
}

TEST_F(SchemaGrammarTest, EnumAndConst) {
  expect({{R"({"enum":["a",1,-2.5,null,true,{"title":[1,{"\u00e9\"":"\\"}]},"\ud83d\ude00\n"]})",
           {"\"a\"", "1", "-2.5", "null", "true", "{ \"title\": [1, {\"\xC3\xA9\\\"\":\"\\\\\"}]}",
            "\"\xF0\x9F\x98\x80\\n\""},
           {"\"b\"", "false", "1.0", "{}", "[1]"}},
          {R"({"type":"string","enum":["red",1]})", {"\"red\""}, {"1"}},
          {R"({"const":{"default":1}})", {R"({"default":1})"}, {R"({"default":2})", "{}"}},
          {R"({"anyOf":[{"const":{"default":1}},{"const":{"default":2}}]})",
           {R"({"default":1})", R"({"default":2})"},
           {R"({"default":3})"}}});
}

TEST_F(SchemaGrammarTest, Lengths) {
  const std::string long_text(139, 'x');
  expect({{R"({"type":"string","minLength":2,"maxLength":4})",
           {"\"ab\"", "\"abcd\"", "\"\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\"", R"("\"\\\n\u0041")"},
           {"\"a\"", "\"abcde\"", "\"a\tb\"", R"("\"\\\n\u0041a")"}},
          {R"({"type":"string","maxLength":0})", {"\"\""}, {"\"a\""}},
          {R"({"type":"string","minLength":2})", {"\"ab\"", "\"abcdefgh\""}, {"\"a\"", "\"\""}},
          {R"({"type":"string","minLength":130,"maxLength":140})",
           {'"' + long_text + '"', '"' + long_text + "\\n\""},
           {"\"a\"", '"' + long_text + "\\nx\"", '"' + std::string(129, 'x') + '"'}},
          {R"({"type":"string","maxLength":60})",
           {"\"\"", '"' + std::string(60, 'x') + '"', '"' + std::string(59, 'x') + "\\n\""},
           {'"' + std::string(61, 'x') + '"', '"' + std::string(60, 'x') + "\\n\""}},
          {R"({"type":"string","maxLength":1000000000000})", {'"' + long_text + '"'}, {}}});
}

TEST_F(SchemaGrammarTest, Patterns) {
  expect(
      {{R"({"type":"string","pattern":"^[a-c]{2,3}-\\d+$"})",
        {"\"ab-1\"", "\"abc-123\""},
        {"\"a-1\"", "\"abcd-1\"", "\"ab-\"", "\"xab-1\""}},
       {R"({"type":"string","pattern":"^(ab|c?d|\\w)x{1,3}$"})",
        {"\"abx\"", "\"dxx\"", "\"cdxxx\"", "\"_x\""},
        {"\"abxxxx\"", "\"ab\""}},
       {R"({"type":"string","pattern":"^.{1,3}$"})",
        {"\"a\"", "\"\xC3\xA9\\\"\\t\""},
        {"\"\"", "\"abcd\"", R"("\n")", "\"\n\""}},
       {R"({"type":"string","pattern":"^é[^a]{1,2}$"})",
        {"\"\xC3\xA9x\"", "\"\xC3\xA9\\\"\\u0001\""},
        {"\"\xC3\xA9\"\"",
         "\"\xC3\xA9"
         "a\"",
         "\"x\""}},
       {R"({"type":"string","pattern":"^[^a]{0,200}$"})",
        {"\"\"", '"' + std::string(200, 'b') + '"'},
        {'"' + std::string(201, 'b') + '"', "\"\"\"", "\"a\"", "\"\\\""}},
       {R"({"type":"string","pattern":"^a[\"\\\\]{1,2}b$"})",
        {R"("a\"b")", R"("a\\\"b")"},
        {"\"a\"b\"", R"("ab")"}},
       {R"({"type":"string","pattern":"^[A-Z]x[a-z]{2,60}-[0-9]{1,40}$"})",
        {"\"Axab-1\"", "\"Ax" + std::string(60, 'b') + "-1\""},
        {"\"Axa-1\"", "\"xab-1\"", "\"Ax" + std::string(61, 'b') + "-1\"", "\"Axab-\"",
         "\"Axab-" + std::string(41, '1') + '"'}},
       {R"({"type":"string","pattern":"^a*b*$","minLength":1,"maxLength":3})",
        {"\"a\"", "\"abb\"", "\"bbb\""},
        {"\"\"", "\"aabb\"", "\"ba\""}},
       {R"({"type":"string","format":"uuid","pattern":"^[0-9a-f-]*4[0-9a-f-]*$"})",
        {"\"123e4567-e89b-12d3-a456-426614174000\""},
        {"\"123E4567-e89b-12d3-a456-426614174000\"", "\"12-4\""}},
       {R"({"type":"string","format":"email","maxLength":8})", {"\"ab@cd.ef\""}, {"\"abc@cd.ef\""}},
       {R"({"type":"string","pattern":"^S_"})", {"\"S_\"", "\"S_any \\n\""}, {"\"xS_\"", "\"S\""}},
       {R"({"type":"string","pattern":"b+"})", {"\"abc\"", "\"b\""}, {"\"ac\""}},
       {R"({"type":"string","pattern":"^a|b$"})", {"\"ax\"", "\"xb\"", "\"a\""}, {"\"xa\""}},
       {R"({"type":"string","pattern":"^(a*)*(b?c?)+$"})",
        {"\"\"", "\"aab\"", "\"bcbc\""},
        {"\"x\""}},
       {R"({"type":"string","pattern":"^[^\\s@]+@\\S+$"})", {"\"a@b\""}, {"\"a b@c\"", "\"a@\""}},
       {R"({"type":"string","pattern":"^[a-z]+$","maxLength":3,"minLength":2})",
        {"\"ab\"", "\"abc\""},
        {"\"a\"", "\"abcd\"", "\"AB\""}},
       {R"({"type":"string","pattern":"^S_","maxLength":4})", {"\"S_ab\""}, {"\"S_abc\""}},
       {R"({"type":"string","pattern":"^(?:a|b){2}?(?<n>c)\\u00e9\\x41[\\w-]$"})",
        {"\"abc\xC3\xA9"
         "A-\""},
        {"\"ac\xC3\xA9"
         "A-\""}}});
}

TEST_F(SchemaGrammarTest, Formats) {
  expect({{R"({"type":"string","format":"date"})",
           {"\"2024-02-28\"", "\"1999-12-31\""},
           {"\"2023-02-30\"", "\"2023-04-31\"", "\"0000-01-01\"", "\"2023-1-1\""}},
          {R"({"type":"string","format":"time"})",
           {"\"10:00:59Z\"", "\"23:59:59.5+01:00\""},
           {"\"24:00:00Z\"", "\"10:00:60Z\"", "\"10:00:00\""}},
          {R"({"type":"string","format":"date-time"})",
           {"\"2024-02-28T10:00:59Z\""},
           {"\"2024-02-28 10:00:59Z\""}},
          {R"({"type":"string","format":"duration"})",
           {"\"P1D\"", "\"PT5M\"", "\"P1Y2M3DT4H5M6S\"", "\"P2W\""},
           {"\"P\"", "\"PT\"", "\"5M\""}},
          {R"({"type":"string","format":"email"})", {"\"a.b@c-d.org\""}, {"\"a@b@c\"", "\"a\""}},
          {R"({"type":"string","format":"hostname"})", {"\"a-b.example\""}, {"\"-a\"", "\"a..b\""}},
          {R"({"type":"string","format":"ipv4"})",
           {"\"0.10.255.249\""},
           {"\"256.1.1.1\"", "\"01.1.1.1\"", "\"1.1.1\""}},
          {R"({"type":"string","format":"ipv6"})",
           {"\"::1\"", "\"::\"", "\"fe80::1:2\"", "\"1:2:3:4:5:6:7:8\"", "\"1::\""},
           {"\"1:2:3:4:5:6:7\"", "\"1::2::3\"", "\":1\"", "\"1:2:3:4:5:6:7::8\""}},
          {R"({"type":"string","format":"uuid"})",
           {"\"123e4567-e89b-12d3-a456-426614174000\""},
           {"\"123e4567e89b12d3a456426614174000\""}},
          {R"({"type":"string","format":"uri"})",
           {"\"https://a.example:80/b%20c?d=1#e\""},
           {"\"a.example\"", "\"http://a b\"", "\"http://a/%2\""}},
          {R"({"type":"integer","format":"int32"})", {"1"}, {"\"a\""}}});
}

TEST_F(SchemaGrammarTest, Integers) {
  expect({{R"({"type":"integer","minimum":-3})", {"-3", "0", "100"}, {"-4", "-10", "-0"}},
          {R"({"type":"integer","maximum":13})", {"13", "-100", "0"}, {"14", "20", "100"}},
          {R"({"type":"integer","exclusiveMinimum":3,"exclusiveMaximum":6})",
           {"4", "5"},
           {"3", "6", "04"}},
          {R"({"type":"integer","minimum":1.5,"maximum":1e2})", {"2", "100"}, {"1", "101"}},
          {R"({"type":"integer","minimum":-9223372036854775808,"maximum":9223372036854775807})",
           {"-9223372036854775808", "9223372036854775807", "0"},
           {"-9223372036854775809", "9223372036854775808"}},
          {R"({"type":"integer","multipleOf":7})", {"0", "7", "-14", "7007"}, {"8", "-0", "07"}},
          {R"({"type":"integer","multipleOf":5,"minimum":1})", {"5", "100"}, {"0", "-5", "6"}},
          {R"({"type":"integer","multipleOf":5,"minimum":-7,"maximum":12})",
           {"-5", "0", "10"},
           {"-10", "15", "1"}},
          {R"({"type":"number","multipleOf":1,"minimum":0})", {"3"}, {"3.5", "-1"}}});
  // Each range against what it means.
  for (int low = -12; low <= 12; low += 3) {
    for (int high = low; high <= 130; high += high < 20 ? 1 : 37) {
      const auto format =
          testing::compiled(R"({"type":"integer","minimum":)" + std::to_string(low) +
                            ",\"maximum\":" + std::to_string(high) + "}");
      for (int i = -25; i <= 140; ++i) {
        EXPECT_EQ(testing::takes(*format, std::to_string(i)), i >= low && i <= high)
            << low << " to " << high << ": " << i;
      }
    }
  }
}

TEST_F(SchemaGrammarTest, Numbers) {
  expect({{R"({"type":"number","minimum":1.5})",
           {"1.5", "1.50", "2", "1.6", "100.25"},
           {"1.4", "1", "-2", "0.9", "1e5", "1.49999"}},
          {R"({"type":"number","exclusiveMinimum":0,"exclusiveMaximum":1})",
           {"0.5", "0.000001"},
           {"0", "1", "0.0", "1.0", "-0.5", "0."}},
          {R"({"type":"number","maximum":-0.5})", {"-0.5", "-1", "-0.75"}, {"-0.4", "0", "-0"}},
          {R"({"type":"number","minimum":0,"maximum":1})",
           {"0", "1", "1.0", "0.25"},
           {"1.01", "-0", "-0.1"}},
          {R"({"type":"number","minimum":-90,"maximum":90.5})",
           {"-90", "90.5", "-0.1", "90.49"},
           {"-90.1", "90.51"}}});
  // Decimals of one and two digits, against what the range means.
  struct Range {
    const char* text;
    double low, high;
  };
  for (const Range& range :
       {Range{"0.1,0.3", 0.1, 0.3}, Range{"-2.5,1.25", -2.5, 1.25}, Range{"1.05,1.5", 1.05, 1.5},
        Range{"-0.15,-0.1", -0.15, -0.1}, Range{"1,3.1", 1, 3.1}, Range{"-1.01,0", -1.01, 0}}) {
    for (const bool is_open : {false, true}) {
      const std::string text = range.text;
      const size_t comma = text.find(',');
      const std::string schema =
          is_open ? R"({"type":"number","exclusiveMinimum":)" + text.substr(0, comma) +
                        ",\"exclusiveMaximum\":" + text.substr(comma + 1) + "}"
                  : R"({"type":"number","minimum":)" + text.substr(0, comma) +
                        ",\"maximum\":" + text.substr(comma + 1) + "}";
      const auto format = testing::compiled(schema);
      for (int hundredths = -320; hundredths <= 320; ++hundredths) {
        const int whole = std::abs(hundredths) / 100, rest = std::abs(hundredths) % 100;
        const std::string number = std::string(hundredths < 0 ? "-" : "") + std::to_string(whole) +
                                   "." + std::to_string(rest / 10) + std::to_string(rest % 10);
        const double value = std::stod(number);
        const bool is_in = is_open ? value > range.low && value < range.high
                                   : value >= range.low && value <= range.high;
        EXPECT_EQ(testing::takes(*format, number), is_in) << schema << ' ' << number;
        if (rest % 10 == 0) {
          const std::string shorter = number.substr(0, number.size() - 1);
          EXPECT_EQ(testing::takes(*format, shorter), is_in) << schema << ' ' << shorter;
        }
      }
    }
  }
}

TEST_F(SchemaGrammarTest, Arrays) {
  std::string many = "[1";
  for (int i = 1; i < 300; ++i) many += ",1";
  expect(
      {{R"({"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":3})",
        {"[1]", "[1,2,3]"},
        {"[]", "[1,2,3,4]", "[\"a\"]"}},
       {R"({"type":"array","items":{"type":"integer"},"maxItems":0})", {"[]"}, {"[1]"}},
       {R"({"type":"array","items":false})", {"[]"}, {"[1]"}},
       {R"({"type":"array","items":{"type":"integer"},"minItems":2})",
        {"[1,2]", "[1,2,3]"},
        {"[1]", "[]"}},
       {R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"items":false})",
        {"[]", "[1]", "[1,\"a\"]"},
        {"[\"a\"]", "[1,\"a\",2]"}},
       {R"({"type":"array","prefixItems":[{"type":"string"}],"items":{"type":"integer"},)"
        R"("minItems":2,"maxItems":3})",
        {"[\"a\",1]", "[\"a\",1,2]"},
        {"[\"a\"]", "[\"a\",1,2,3]", "[1,1]"}},
       {R"({"type":"array","prefixItems":[true,{}],"minItems":2})", {"[1,2]"}, {"[1]", "[1,2,3]"}},
       {R"({"items":{"type":"integer"}})", {"[]", "[1]"}, {"1"}},
       {R"({"type":"array","items":{"const":1},"minItems":290,"maxItems":300})",
        {many + "]"},
        {"[1]", many + ",1]"}},
       {R"({"type":"array","items":{"const":1},"maxItems":299})",
        {"[]", "[1]", "[1,1]"},
        {many + "]"}}});
}

TEST_F(SchemaGrammarTest, Properties) {
  const std::string abc =
      R"("type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"},)"
      R"("c":{"type":"null"}})";
  expect(
      {{"{" + abc + R"(,"required":["b"]})",
        {R"({"b":""})", R"({"a":1,"b":"","c":null})", R"({"b":"","c":null})"},
        {"{}", R"({"a":1})", R"({"b":"","a":1})", R"({"b":"","d":1})", R"({"a":1,"b":"",})"}},
       {"{" + abc + "}", {"{}", R"({"c":null})", R"({"a":1,"c":null})"}, {R"({"b":1})"}},
       {"{" + abc + R"(,"minProperties":1,"maxProperties":2})",
        {R"({"a":1})", R"({"a":1,"c":null})"},
        {"{}", R"({"a":1,"b":"","c":null})"}},
       {"{" + abc + R"(,"required":["b"],"minProperties":2})",
        {R"({"a":1,"b":""})", R"({"b":"","c":null})"},
        {R"({"b":""})"}},
       {R"({"type":"object","properties":{}})", {"{}"}, {R"({"a":1})"}},
       {R"({"type":"object","properties":{"x":{"type":"object","properties":{"title":)"
        R"({"type":"integer"}}},"y":{"type":"object","properties":{"title":{"type":"string"}}}}})",
        {R"({"x":{"title":1},"y":{"title":"a"}})"},
        {R"({"x":{"title":"a"}})", R"({"y":{"title":1}})"}},
       {R"({"type":"object","properties":{"":true,"a\"b":true,"\u00e9\n":true}})",
        {"{\"\":1,\"a\\\"b\":2,\"\xC3\xA9\\n\":3}"},
        {"{\"\xC3\xA9\n\":3}"}},
       {R"({"type":"object","properties":{"a":false,"b":true}})", {R"({"b":1})"}, {R"({"a":1})"}}});
}

TEST_F(SchemaGrammarTest, OtherProperties) {
  expect(
      {{R"({"type":"object","additionalProperties":{"type":"integer"},"maxProperties":2})",
        {"{}", R"({"x":1,"y":2})"},
        {R"({"x":"a"})", R"({"x":1,"y":2,"z":3})"}},
       {R"({"type":"object","additionalProperties":true,"minProperties":1})",
        {R"({"x":[]})"},
        {"{}"}},
       {R"({"type":"object","properties":{"ab":{"type":"integer"},"a":{"type":"integer"},)"
        R"("\u00e9":{"type":"integer"}},"additionalProperties":{"type":"string"}})",
        {R"({"ab":1,"abc":"x","b":"y"})", R"({"":"x"})", R"({"a":1})", "{\"\xC3\xA8\":\"x\"}"},
        {R"({"ab":"x"})", R"({"a":"x"})", R"({"\u0061":"x"})", "{\"\xC3\xA9\":\"x\"}",
         R"({"x":1})"}},
       {R"({"type":"object","properties":{"address":{"type":"integer"}},)"
        R"("additionalProperties":{"type":"string"}})",
        {R"({"address":1,"add":"x","adult":"y"})"},
        {R"({"address":"x"})", R"({"addr":"x"})"}},
       {R"({"type":"object","required":["a"]})", {R"({"a":1,"b":2})"}, {"{}", R"({"b":1})"}},
       {R"({"type":"object","patternProperties":{"^x[0-9]$":{"type":"integer"}}})",
        {"{}", R"({"x1":1,"x2":2})"},
        {R"({"x":1})", R"({"x1":"a"})"}},
       {R"({"type":"object","propertyNames":{"pattern":"^[a-c]{1,2}$"},)"
        R"("additionalProperties":{"type":"integer"}})",
        {R"({"ab":1})"},
        {R"({"d":1})", R"({"ab":"x"})"}},
       {R"({"type":"object","propertyNames":{"maxLength":2}})", {R"({"ab":[]})"}, {R"({"abc":1})"}},
       {R"({"type":"object","propertyNames":{"$ref":"#/$defs/n"},"minProperties":2,)"
        R"("additionalProperties":{"type":"integer"},"$defs":{"n":{"enum":["a","b"]}}})",
        {R"({"a":1,"b":2})"},
        {R"({"a":1})", R"({"a":1,"a":2})"}}});
}

TEST_F(SchemaGrammarTest, Combinations) {
  expect(
      {{R"({"anyOf":[{"type":"integer"},{"type":"string"}]})", {"1", "\"a\""}, {"null"}},
       {R"({"type":"string","anyOf":[{"maxLength":1},{"pattern":"^ab$"}]})",
        {"\"a\"", "\"ab\""},
        {"\"bc\"", "1"}},
       {R"({"anyOf":[false,{"type":"integer"}]})", {"1"}, {"\"a\""}},
       {R"({"oneOf":[{"type":"integer"},{"type":"null"}]})", {"1", "null"}, {"\"a\""}},
       {R"({"oneOf":[{"$ref":"#/$defs/c"},{"$ref":"#/$defs/d"}],"discriminator":{"propertyName":)"
        R"("k"},"$defs":{"c":{"type":"object","properties":{"k":{"const":"c","type":"string"},)"
        R"("v":{"type":"integer"}},"required":["k","v"]},"d":{"type":"object","properties":{"k":)"
        R"({"enum":["d","e"]}},"required":["k"]}}})",
        {R"({"k":"c","v":1})", R"({"k":"e"})"},
        {R"({"k":"d","v":1})", R"({"k":"c"})"}},
       {R"({"oneOf":[{"type":"object","properties":{"a":{}},"required":["a"]},)"
        R"({"type":"object","properties":{"b":{}},"required":["b"]}]})",
        {R"({"a":1})", R"({"b":1})"},
        {R"({"a":1,"b":1})", "{}"}},
       {R"({"allOf":[{"$ref":"#/$defs/x"}],"description":"d","$defs":{"x":{"type":"integer"}}})",
        {"1"},
        {"\"a\""}},
       {R"({"allOf":[{"$ref":"#/$defs/x"},{"type":"object","properties":{"b":{"type":"string"}},)"
        R"("required":["b"]}],"$defs":{"x":{"type":"object","properties":{"a":{"type":"integer"}},)"
        R"("required":["a"]}}})",
        {R"({"a":1,"b":"x"})"},
        {R"({"a":1})", R"({"b":"x"})"}},
       {R"({"allOf":[{"type":["integer","string"]},{"type":["string","null"]},{"maxLength":1}]})",
        {"\"a\""},
        {"1", "null", "\"ab\""}}});
}

TEST_F(SchemaGrammarTest, References) {
  const std::string tree =
      R"({"$ref":"#/$defs/n","$defs":{"n":{"type":"object","properties":{"v":{"type":"integer"},)"
      R"("c":{"type":"array","items":{"$ref":"#/$defs/n"}}},"required":["v"]}}})";
  expect({{tree, {R"({"v":1})", R"({"v":1,"c":[{"v":2,"c":[]},{"v":3}]})"}, {R"({"c":[{}]})"}},
          {R"({"type":"object","properties":{"next":{"anyOf":[{"$ref":"#"},{"type":"null"}]}}})",
           {R"({"next":{"next":null}})"},
           {R"({"next":1})"}},
          {R"({"properties":{"a/b~c":{"type":"integer"},"x":{"$ref":"#/properties/a~1b~0c"},)"
           R"("y":{"$ref":"#/properties/z/anyOf/1"},"z":{"anyOf":[{"type":"null"},)"
           R"({"type":"boolean"}]},"w":{"$ref":"#/properties/a%7E1b~0c"}}})",
           {R"({"a/b~c":1,"x":2,"y":true,"z":null,"w":3})"},
           {R"({"x":"a"})", R"({"y":null})"}},
          {R"({"type":"object","properties":{"a":{"$ref":"#/$defs/\u00e9","description":"d"}},)"
           R"("$defs":{"\u00e9":{"type":"integer"}}})",
           {R"({"a":1})"},
           {R"({"a":"x"})"}}});
}

TEST_F(SchemaGrammarTest, StructuralTagsHoldSchemas) {
  const AnswerFormat tag{
      .kind = AnswerFormat::Kind::kStructuralTag,
      .source = R"({"type":"structural_tag","format":{"type":"sequence","elements":[{"type":"tag",)"
                R"("begin":"<a>","content":{"type":"json_schema","json_schema":{"type":"string",)"
                R"("maxLength":2}},"end":"</a>"},{"type":"or","elements":[{"type":"json_schema",)"
                R"("json_schema":{"type":"integer","minimum":3}},{"type":"json_schema",)"
                R"("json_schema":true}]}]}})"};
  const auto format = testing::compiled(tag);
  EXPECT_TRUE(testing::takes(*format, "<a>\"xy\"</a>3"));
  EXPECT_TRUE(testing::takes(*format, "<a>\"\\n\"</a>{}"));
  EXPECT_FALSE(testing::takes(*format, "<a>\"xyz\"</a>3"));
  EXPECT_FALSE(testing::takes(*format, "<a>\"x\ty\"</a>3"));
  const auto any = testing::compiled(AnswerFormat{.kind = AnswerFormat::Kind::kJson});
  EXPECT_TRUE(testing::takes(*any, R"({"a":[1]})"));
  EXPECT_FALSE(testing::takes(*any, "[]"));
}

}  // namespace
}  // namespace heddle::grammar
