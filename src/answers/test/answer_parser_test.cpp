#include "answers/answer_parser.h"

#include <chrono>
#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "answers/test/answer_cases.h"
#include "testing/random.h"

namespace heddle::answers {
namespace {

/// Joins deltas as a client does.
class Joined {
 public:
  void add(const AnswerDelta& delta) {
    answer_.reasoning += delta.reasoning;
    answer_.text += delta.text;
    for (const CallDelta& call : delta.calls) {
      if (call.index == answer_.calls.size()) {
        EXPECT_FALSE(call.id.empty());
        answer_.calls.push_back({call.id, call.name, {}});
      } else {
        EXPECT_EQ(call.index + 1, answer_.calls.size());
        EXPECT_TRUE(call.id.empty() && call.name.empty());
      }
      answer_.calls.back().arguments += call.arguments;
    }
  }
  [[nodiscard]] const ParsedAnswer& answer() const { return answer_; }

 private:
  ParsedAnswer answer_;
};

TEST(AnswerParser, FindsThoughtsTextAndCalls) {
  for (const AnswerCase& one : answer_cases()) {
    const ParsedAnswer answer = parse_answer(style_of_case(one), options_of_case(one), one.text);
    EXPECT_EQ(shown(answer), one.expected) << name(one.format) << ": " << one.what;
  }
}

TEST(AnswerParser, FindsTheSameHoweverTheTextIsCut) {
  std::mt19937_64& random = testing::rng();
  for (const AnswerCase& one : answer_cases()) {
    for (int round = 0; round < 40; ++round) {
      AnswerParser parser(style_of_case(one), options_of_case(one));
      Joined joined;
      const size_t longest = round == 0 ? 1 : 1 + random() % 12;
      for (size_t at = 0; at < one.text.size();) {
        const size_t size = 1 + random() % longest;
        joined.add(parser.push(std::string_view(one.text).substr(at, size)));
        at += size;
      }
      joined.add(parser.finish());
      EXPECT_EQ(shown(joined.answer()), one.expected) << name(one.format) << ": " << one.what;
      EXPECT_EQ(parser.num_calls(), joined.answer().calls.size());
    }
  }
}

TEST(AnswerParser, ReportsArgumentsAsTheyCome) {
  ParserOptions options;
  find_tools(options, tools_of_cases());
  AnswerParser parser({ToolFormat::kHermes, {}}, options);
  EXPECT_TRUE(parser.push("<tool_call>\n{\"name\": \"now\", \"argum").empty());
  AnswerDelta delta = parser.push("ents\": {\"zo");
  ASSERT_EQ(delta.calls.size(), 1u);
  EXPECT_EQ(delta.calls[0].name, "now");
  EXPECT_EQ(delta.calls[0].arguments, "{\"zo");
  delta = parser.push("ne\": \"U");
  ASSERT_EQ(delta.calls.size(), 1u);
  EXPECT_TRUE(delta.calls[0].name.empty() && delta.calls[0].id.empty());
  EXPECT_EQ(delta.calls[0].arguments, "ne\": \"U");

  AnswerParser xml({ToolFormat::kQwen3Coder, {}}, options);
  (void)xml.push("<tool_call><function=now><parameter=zone>\n");
  EXPECT_EQ(xml.push("Eur").calls.at(0).arguments, "Eur");
  EXPECT_TRUE(xml.push("\n</par").empty());
  EXPECT_EQ(xml.push("is").calls.at(0).arguments, "\\n</paris");
}

TEST(AnswerParser, HoldsTextBackOnlyWhereItMayBecomeAMark) {
  ParserOptions options;
  find_tools(options, tools_of_cases());
  options.finds_reasoning = true;
  AnswerParser parser({ToolFormat::kHermes, *reasoning_named("think")}, options);
  EXPECT_EQ(parser.push("Hello, <").text, "Hello,");
  EXPECT_EQ(parser.push("to").text, "");
  EXPECT_EQ(parser.push("wer").text, " <tower");
  EXPECT_EQ(parser.push(" ").text, "");
  EXPECT_EQ(parser.finish().text, " ");
}

TEST(AnswerParser, GivesIdsAsClientsAndTemplatesExpectThem) {
  ParserOptions options;
  find_tools(options, tools_of_cases());
  const std::string text = "<tool_call>{\"name\": \"now\"}</tool_call>";
  const std::string twice = text + text;
  const ParsedAnswer answer = parse_answer({ToolFormat::kHermes, {}}, options, twice);
  ASSERT_EQ(answer.calls.size(), 2u);
  EXPECT_NE(answer.calls[0].id, answer.calls[1].id);
  EXPECT_EQ(answer.calls[0].id.size(), 29u);
  EXPECT_TRUE(answer.calls[0].id.starts_with("call_"));
  const ParsedAnswer mistral =
      parse_answer({ToolFormat::kMistralV11, {}}, options, "[TOOL_CALLS]now[ARGS]{}");
  EXPECT_EQ(mistral.calls.at(0).id.size(), 9u);
}

TEST(AnswerParser, StopsAfterAsManyCalls) {
  ParserOptions options;
  find_tools(options, tools_of_cases());
  options.max_calls = 1;
  for (const auto& [format, text] : std::vector<std::pair<ToolFormat, std::string>>{
           {ToolFormat::kHermes,
            "a<tool_call>{\"name\": \"now\"}</tool_call>\n<tool_call>{\"name\": "
            "\"add\"}</tool_call> b"},
           {ToolFormat::kMistral, "a[TOOL_CALLS][{\"name\": \"now\"}, {\"name\": \"add\"}]"},
           {ToolFormat::kGemma, "a```tool_code\nnow()\nadd()\n```b"},
           {ToolFormat::kQwen3Coder, "a<function=now></function><function=add></function>"}}) {
    EXPECT_EQ(shown(parse_answer({format, {}}, options, text)), "|a|now{}") << text;
  }
}

TEST(AnswerParser, LeavesThoughtsInTheTextWhereTheyAreNotLookedFor) {
  ParserOptions options;
  find_tools(options, tools_of_cases());
  const AnswerStyle style{ToolFormat::kHermes, *reasoning_named("think")};
  EXPECT_EQ(shown(parse_answer(style, options,
                               "\n<think>\n<tool_call>{\"name\": \"now\"}\n</think>\n"
                               "<tool_call>{\"name\": \"add\"}")),
            "|\n<think>\n<tool_call>{\"name\": \"now\"}\n</think>|add{}");
}

TEST(AnswerParser, DropsTheMarksOfTheTextAfterThoughts) {
  ParserOptions options;
  options.finds_reasoning = true;
  const AnswerStyle style{ToolFormat::kNone, *reasoning_named("granite_response")};
  const auto parts = [&](std::string_view text) {
    return shown(parse_answer(style, options, text));
  };
  EXPECT_EQ(parts("<think>A</think><response>B <b>\n</response>"), "A|B <b>\n");
  EXPECT_EQ(parts("<think>A</think>\nB</response>"), "A|B</response>");
  EXPECT_EQ(parts("<response>B</response>"), "|<response>B</response>");
}

// Whatever models write, each call with whole arguments has an object.
TEST(AnswerParser, GivesJsonForValuesOfAllKinds) {
  ParserOptions options;
  find_tools(options, tools_of_cases());
  for (const std::string value : {"1",
                                  "-0",
                                  "01",
                                  "1e5",
                                  "+1",
                                  "nan",
                                  "True",
                                  "none",
                                  "\"a\"",
                                  "'a'",
                                  "{",
                                  "[1,]",
                                  "{'a': (1, 2)}",
                                  "a\\b",
                                  "\x01",
                                  "\n\n",
                                  "",
                                  "{\"a\": 1, \"a\": 2}",
                                  "\\",
                                  "\"",
                                  "[[[[[[]]]]]]"}) {
    for (const std::string key : {"zone", "count", "exact", "range", "from", "unit", "other"}) {
      const std::string text =
          "<function=now><parameter=" + key + ">" + value + "</parameter></function>";
      const ParsedAnswer answer = parse_answer({ToolFormat::kQwen3Coder, {}}, options, text);
      ASSERT_EQ(answer.calls.size(), 1u) << text;
      const auto json = nlohmann::json::parse(answer.calls[0].arguments, nullptr, false);
      ASSERT_TRUE(json.is_object()) << answer.calls[0].arguments;
      EXPECT_TRUE(json[key].is_string() || (key != "zone" && key != "unit")) << text;
    }
  }
}

// Twice the text takes twice the time: a text that starts over and over what is none.
TEST(AnswerParser, TakesTimeInProportionToTheText) {
  ParserOptions options;
  find_tools(options, tools_of_cases());
  for (const auto& [format, unit] : std::vector<std::pair<ToolFormat, std::string>>{
           {ToolFormat::kHermes, "<tool_call>{\"id\": ["},
           {ToolFormat::kHermes, "<tool_call>{\"name\": \"now\"}\n\n</tool_"},
           {ToolFormat::kLlama3Json, "\n{\"id\":[{"},
           {ToolFormat::kPythonic, "\n[now(zone=\"["},
           {ToolFormat::kPythonic, "\n[now(zone=[[("},
           {ToolFormat::kQwen3Coder, "<function=now><parameter=count>[1, 2"},
           {ToolFormat::kGemma, "```tool_code\nnow("},
           {ToolFormat::kMistral, "[TOOL_CALLS][{\"name\": \"now\"}, {\"id\": \" "},
           {ToolFormat::kNone, "<think>\n\n</thin"}}) {
    std::string text = format == ToolFormat::kNone ? "<think>" : "";
    while (text.size() < 400000) text += unit;
    AnswerStyle style{format, {}};
    if (format == ToolFormat::kNone) style.reasoning = *reasoning_named("think");
    const auto begin = std::chrono::steady_clock::now();
    (void)parse_answer(style, options, text);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    EXPECT_LT(seconds, 5.0) << unit;  // in squares of the text it would be minutes
  }
}

}  // namespace
}  // namespace heddle::answers
