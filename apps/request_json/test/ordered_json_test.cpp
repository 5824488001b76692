#include "request_json/ordered_json.h"

#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "expect_error.h"
#include "files/json_text.h"
#include "readers/clean_message.h"
#include "readers/linear_time.h"

namespace heddle::app {
namespace {

using nlohmann::ordered_json;

TEST(OrderedJson, ReadsWhatNlohmannReads) {
  for (const char* text : {"null", "[]", R"({"b":{"d":1,"c":[null,{}]},"a":2.0})",
                           R"([-1,18446744073709551615,1e300])",
                           R"({"prompt":"a\u00e9\n","metadata":{"z":[{"y":true}],"x":"w"}})"}) {
    EXPECT_EQ(files::json_text(*parse_ordered_json(text, "r")), ordered_json::parse(text).dump());
  }
}

TEST(OrderedJson, RefusesInOneLine) {
  const auto refused = [](std::initializer_list<const char*> parts, const std::string& text) {
    testing::expect_invalid(parts, [&] { (void)parse_ordered_json(text, "a.jsonl, line 3"); });
  };
  refused({"a.jsonl, line 3: malformed JSON: parse error at line 1"}, "{");
  refused({"malformed JSON"}, "{} {}");
  refused({"malformed JSON: number overflow"}, "1e999");
  refused({"a.jsonl, line 3: field \"a\" is given twice"}, R"([{"a": 1}, {"a": 1, "a": 2}])");
  refused({"a.jsonl, line 3: JSON nested 65 deep, at most 64 is supported"}, std::string(65, '['));
}

TEST(OrderedJson, QuotesLittleOfTheLine) {
  const std::string hostile = testing::hostile_text(size_t{10} << 20);
  const std::string text = ordered_json(hostile).dump();
  for (const std::string& line :
       {"{" + text + ":1," + text + ":2}", "{" + text + "}", '"' + hostile + '"',
        std::string(size_t{10} << 20, '9') + "e999"}) {
    testing::expect_clean_message(line.substr(0, 20),
                                  [&] { (void)parse_ordered_json(line, "line 3"); });
  }
}

TEST(OrderedJson, TakesTimeInProportionToTheLine) {
  const auto fields = [](size_t n) {
    std::string line = "{\"a\":{}";
    for (size_t i = 0; i < n; ++i) line += ",\"" + std::to_string(i) + "\":{\"x\":0}";
    return line + '}';
  };
  testing::expect_linear("fields", 1000, fields,
                         [](const std::string& line) { (void)parse_ordered_json(line, "r"); });
}

}  // namespace
}  // namespace heddle::app
