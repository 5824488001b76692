#include "files/json_tree.h"

#include <new>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "heddle/core/error.h"

#include "expect_error.h"
#include "files/json_text.h"
#include "files/json_value.h"
#include "heap_count.h"
#include "readers/clean_message.h"
#include "readers/linear_time.h"

namespace heddle::files {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using testing::expect_invalid;

std::string read_back(const std::string& text) { return json_text(*parse_json(text, "a.json")); }

TEST(JsonTree, ReadsWhatNlohmannReads) {
  for (const char* text : {"null",
                           "true",
                           "-3",
                           "18446744073709551615",
                           "18446744073709551616",
                           "-9223372036854775808",
                           "-9223372036854775809",
                           "-0",
                           "-0.0",
                           "1.5e300",
                           "1e-400",
                           "-1e-400",
                           "4.9e-324",
                           "0.1",
                           "2.2250738585072011e-308",
                           "[]",
                           "{}",
                           R"("a\u0041\n\ud83d\ude00")",
                           R"([1, [2, {"x": []}], {"y": {}}, "z"])",
                           R"( {"b": {"d": 1, "c": [null, {}]}, "a": 2.0} )",
                           R"({"": {"": ""}})",
                           "\xEF\xBB\xBF[1]"}) {
    EXPECT_EQ(read_back(text), ordered_json::parse(text).dump()) << text;
  }
}

TEST(JsonTree, KeepsTheOrderOfMembers) {
  std::string text = "{";
  for (int i = 100; i > 0; --i) text += '"' + std::to_string(i) + "\":" + std::to_string(i) + ',';
  text += R"("a":{"z":2,"y":3}})";
  EXPECT_EQ(read_back(text), text);
}

TEST(JsonTree, TellsIntegersFromFractions) {
  const JsonTree tree =
      parse_json("[2, 2.0, -2, 9223372036854775807, 9223372036854775808, 1e2]", "a");
  const JsonArray& list = tree->get_array();
  EXPECT_EQ(integer_of(list[0]), 2);
  EXPECT_FALSE(integer_of(list[1]));
  EXPECT_EQ(integer_of(list[2]), -2);
  EXPECT_EQ(integer_of(list[3]), INT64_MAX);
  EXPECT_TRUE(is_integer(list[4]));
  EXPECT_FALSE(integer_of(list[4]));
  EXPECT_FALSE(is_integer(list[5]));
  EXPECT_EQ(number_of(list[5]), 100);
  EXPECT_FALSE(integer_in(list[2], 0, 9));
}

TEST(JsonTree, ChecksKeysDepthAndSize) {
  const auto refused = [](std::initializer_list<const char*> parts, const std::string& text,
                          const JsonLimits& limits = {}) {
    expect_invalid(parts, [&] { (void)parse_json(text, "a.json", limits); });
  };
  refused({"a.json: key 'a' is given twice"}, R"({"a": 1, "b": 2, "a": 3})");
  refused({"key 'a' is given twice"}, R"([{"a": {"a": 1}, "b": {"a": 1, "a": 2}}])");
  EXPECT_NO_THROW((void)parse_json(R"([{"a": {"a": {}}}, {"a": 1}])", "a.json"));

  EXPECT_NO_THROW((void)parse_json("[[1], {}]", "a.json", {.depth = 2, .members = 1}));
  refused({"a.json: nested deeper than 2 levels"}, "[[[]]]", {.depth = 2, .members = 1});
  refused({"nested deeper than 2 levels"}, R"({"a": [{}]})", {.depth = 2, .members = 1});
  EXPECT_NO_THROW((void)parse_json(R"([{"a": 1}, {"b": [2, 3]}])", "a.json", {.members = 1}));
  refused({"a.json: an object has more than 1 members"}, R"([{"a": 1, "b": 2}])", {.members = 1});

  refused({"a.json: not valid JSON: parse error at line 1, column 2"}, "{");
  refused({"not valid JSON"}, "");
  refused({"not valid JSON"}, "1 2");
  refused({"not valid JSON"}, "[1,]");
  refused({"not valid JSON"}, "\"\xff\"");
  refused({"not valid JSON: number overflow: 1e999"}, "1e999");
  refused({"not valid JSON: number overflow: -1e400"}, "[-1e400]");
  refused({"not valid JSON: number overflow"}, "1e99999999999");
  refused({"line 2, column 6: unexpected 'x'"}, "{\"a\":1,\n \"b\":x}");
  refused({"column 8: half a surrogate pair"}, R"("\udc00")");
  refused({"not valid JSON"}, R"("\ud800\n")");
  refused({"column 2: bytes that are not UTF-8"}, "\"\xff\"");
  refused({"column 3: unexpected '\\x00'"}, std::string("{}\0", 3));
  for (const char* text : {"01", "1.", "+1", "nan", "tru", "'a'", "{a:1}", "[1 2]", "//x\n1",
                           "\"\x01\"", R"("\x")", R"({"a":1,})", "-"}) {
    refused({"not valid JSON: parse error at line 1, column "}, text);
  }
}

/// `count` parts with a comma between.
template <class Part>
std::string listed(size_t count, const Part& part) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += (i > 0 ? "," : "") + part(std::to_string(i));
  return text;
}

TEST(JsonTree, TakesTimeInProportionToTheText) {
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
                         [](const std::string& text) { (void)parse_json(text, "a.json"); });
  testing::expect_linear("objects in an object", 1000, nested,
                         [](const std::string& text) { (void)parse_json(text, "a.json"); });
  testing::expect_linear("objects in an array", 1000, array,
                         [](const std::string& text) { (void)parse_json(text, "a.json"); });
}

TEST(JsonTree, QuotesLittleOfTheText) {
  const std::string hostile = testing::hostile_text(size_t{10} << 20);
  const std::string key = json(hostile).dump();
  const auto refused = [](const char* what, const std::string& text) {
    testing::expect_clean_message(what, [&] { (void)parse_json(text, "a.json"); });
  };
  refused("a key twice", "{" + key + ":1," + key + ":2}");
  refused("a string in the wrong place", "{" + key + "}");
  refused("raw controls", '"' + hostile + '"');
  refused("bytes that are no UTF-8", '"' + std::string(hostile.size(), 'x') + "\xff\xc0\"");
  refused("a long number", std::string(hostile.size(), '9') + "e999");
}

TEST(JsonTree, RefusesTextThatIsNotUtf8) {
  using namespace std::string_literals;
  for (const std::string& bytes : {"\xC0\x80"s, "\xE0\x80\x80"s, "\xF0\x80\x80\x80"s,
                                   "\xED\xA0\x80"s, "\xF4\x90\x80\x80"s, "\x80"s}) {
    for (const std::string& text : {"[\"" + bytes + "\"]", "{\"" + bytes + "\": 1}"}) {
      testing::expect_invalid({"the file"}, [&] { (void)parse_json(text, "the file"); });
    }
  }
  const auto characters = parse_json("[\"\u00e9\U0001f600\"]", "the file");
  EXPECT_EQ(text_of(characters->at(0)), "\u00e9\U0001f600");
}

/// Containers in containers of either kind, in each place; objects that grow past a few members.
const std::string kNested =
    R"({"a":[[1,[2,"a string that is longer than a short one"]],{"b":{"c":[{},[],null]}}],"d":{},)"
    R"("e":{"a":[true],"b":{"a":[{}]},"c":[1.5],"d":[[]],"e":{"f":0},"f":{"g":[0]},"g":[-1]},"h":[],)"
    R"("i":[[[[[[0]]]]]],"j":{"a":{"a":{"a":{"a":1}}}},"k":"text","l":[{"a":1},{"b":[2,3]}]})";

TEST(JsonTree, EndsWithoutAskingForMemory) {
  for (const std::string& text : {kNested, '[' + kNested + ',' + kNested + ']'}) {
    int64_t num_allocations = 0;
    {
      const JsonTree tree = parse_json(text, "a.json");
      EXPECT_EQ(json_text(*tree), ordered_json::parse(text).dump());
      num_allocations = testing::num_heap_allocations();
    }
    EXPECT_EQ(testing::num_heap_allocations(), num_allocations);
  }
}

/// Copies lie outside of the tree, each container by itself.
TEST(JsonTree, ACopyEndsWithoutAskingForMemory) {
  const JsonTree tree = parse_json(kNested, "a.json");
  auto copy = std::make_unique<Json>(*tree);
  EXPECT_EQ(json_text(*copy), json_text(*tree));
  const int64_t num_allocations = testing::num_heap_allocations();
  copy.reset();
  EXPECT_EQ(testing::num_heap_allocations(), num_allocations);
}

/// Each allocation fails in turn; texts whose end is wrong leave half a tree.
TEST(JsonTree, IsReadOrRefusedWithoutMemory) {
  const std::string half = kNested.substr(0, kNested.size() - 1);
  for (const std::string& text : {kNested, half, half + R"(,"m":[{"n":[1)", half + R"(,"a":1})"}) {
    int64_t num_failures = 0, countdown = 0;
    do {
      countdown = num_failures + 1;
      try {
        const testing::FailingAllocation failing(countdown);
        const JsonTree tree = parse_json(text, "a.json");
        const Json copy = *tree;
        EXPECT_FALSE(json_text(copy).empty());
      } catch (const std::bad_alloc&) {
        EXPECT_EQ(countdown, 0);
      } catch (const Error&) {
        EXPECT_NE(text, kNested);
      }
      num_failures += countdown == 0 ? 1 : 0;
    } while (countdown == 0);
    EXPECT_GT(num_failures, text == kNested ? 10 : 3) << "few allocations were seen";
  }
}

}  // namespace
}  // namespace heddle::files
