#include "files/parse_json.h"

#include <string>

#include <gtest/gtest.h>

#include "expect_error.h"
#include "readers/clean_message.h"
#include "readers/linear_time.h"

namespace heddle::files {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using testing::expect_invalid;

TEST(ParseJson, ReadsWhatNlohmannReads) {
  for (const char* text :
       {"null", "true", "-3", "18446744073709551615", "1.5e300", R"("a\u0041\n")", "[]", "{}",
        R"([1, [2, {"x": []}], {"y": {}}, "z"])", R"( {"b": {"d": 1, "c": [null, {}]}, "a": 2.0} )",
        R"({"": {"": ""}})"}) {
    const json want = json::parse(text);
    const auto got = parse_json<json>(text, "a.json");
    EXPECT_EQ(*got, want) << text;
    EXPECT_EQ(got->dump(), want.dump());  // 2.0 and 2 are equal, but not the same
    EXPECT_EQ(parse_json<ordered_json>(text, "a.json")->dump(), ordered_json::parse(text).dump());
  }
}

TEST(ParseJson, KeepsTheOrderOfMembersWhereItIsAskedFor) {
  const std::string text = R"({"b":1,"a":{"z":2,"y":3}})";
  EXPECT_EQ(parse_json<ordered_json>(text, "a.json")->dump(), text);
  EXPECT_EQ(parse_json<json>(text, "a.json")->dump(), R"({"a":{"y":3,"z":2},"b":1})");
}

template <class Json>
void expect_checked() {
  const auto refused = [](std::initializer_list<const char*> parts, const std::string& text,
                          const JsonLimits& limits = {}) {
    expect_invalid(parts, [&] { (void)parse_json<Json>(text, "a.json", limits); });
  };
  refused({"a.json: key 'a' is given twice"}, R"({"a": 1, "b": 2, "a": 3})");
  refused({"key 'a' is given twice"}, R"([{"a": {"a": 1}, "b": {"a": 1, "a": 2}}])");
  EXPECT_NO_THROW((void)parse_json<Json>(R"([{"a": {"a": {}}}, {"a": 1}])", "a.json"));

  EXPECT_NO_THROW((void)parse_json<Json>("[[1], {}]", "a.json", {.depth = 2, .members = 1}));
  refused({"a.json: nested deeper than 2 levels"}, "[[[]]]", {.depth = 2, .members = 1});
  refused({"nested deeper than 2 levels"}, R"({"a": [{}]})", {.depth = 2, .members = 1});
  EXPECT_NO_THROW((void)parse_json<Json>(R"([{"a": 1}, {"b": [2, 3]}])", "a.json", {.members = 1}));
  refused({"a.json: an object has more than 1 members"}, R"([{"a": 1, "b": 2}])", {.members = 1});

  refused({"a.json: not valid JSON: parse error at line 1, column 2"}, "{");
  refused({"not valid JSON"}, "");
  refused({"not valid JSON"}, "1 2");
  refused({"not valid JSON"}, "[1,]");
  refused({"not valid JSON"}, "\"\xff\"");
  refused({"not valid JSON: number overflow"}, "1e999");
}

TEST(ParseJson, ChecksKeysDepthAndSize) {
  expect_checked<json>();
  expect_checked<ordered_json>();
}

/// `count` parts with a comma between.
template <class Part>
std::string listed(size_t count, const Part& part) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += (i > 0 ? "," : "") + part(std::to_string(i));
  return text;
}

TEST(ParseJson, TakesTimeInProportionToTheText) {
  const auto flat = [](size_t n) {
    return '{' + listed(n, [](const std::string& i) { return '"' + i + "\":0"; }) + '}';
  };
  const auto nested = [](size_t n) {
    return '{' + listed(n, [](const std::string& i) { return '"' + i + R"(":{"a":[{}]})"; }) + '}';
  };
  const auto array = [](size_t n) {
    return '[' + listed(n, [](const std::string&) { return std::string(R"({"a":{}})"); }) + ']';
  };
  testing::expect_linear("members", 2000, flat,
                         [](const std::string& text) { (void)parse_json<json>(text, "a.json"); });
  testing::expect_linear("members in order", 2000, flat, [](const std::string& text) {
    (void)parse_json<ordered_json>(text, "a.json");
  });
  testing::expect_linear("objects in an object", 1000, nested,
                         [](const std::string& text) { (void)parse_json<json>(text, "a.json"); });
  testing::expect_linear("objects in an array", 1000, array, [](const std::string& text) {
    (void)parse_json<ordered_json>(text, "a.json");
  });
}

TEST(ParseJson, QuotesLittleOfTheText) {
  const std::string hostile = testing::hostile_text(size_t{10} << 20);
  const std::string key = json(hostile).dump();
  const auto refused = [](const char* what, const std::string& text) {
    testing::expect_clean_message(what, [&] { (void)parse_json<json>(text, "a.json"); });
  };
  refused("a key twice", "{" + key + ":1," + key + ":2}");
  refused("a string in the wrong place", "{" + key + "}");
  refused("raw controls", '"' + hostile + '"');
  refused("bytes that are no UTF-8", '"' + std::string(hostile.size(), 'x') + "\xff\xc0\"");
  refused("a long number", std::string(hostile.size(), '9') + "e999");
}

TEST(ParseJson, RefusesTextThatIsNotUtf8) {
  using namespace std::string_literals;
  for (const std::string& bytes : {"\xC0\x80"s, "\xE0\x80\x80"s, "\xF0\x80\x80\x80"s,
                                   "\xED\xA0\x80"s, "\xF4\x90\x80\x80"s, "\x80"s}) {
    for (const std::string& text : {"[\"" + bytes + "\"]", "{\"" + bytes + "\": 1}"}) {
      testing::expect_invalid({"the file"},
                              [&] { (void)parse_json<nlohmann::json>(text, "the file"); });
    }
  }
  const auto characters = parse_json<json>("[\"\u00e9\U0001f600\"]", "the file");
  EXPECT_EQ((*characters)[0], "\u00e9\U0001f600");
}

}  // namespace
}  // namespace heddle::files
