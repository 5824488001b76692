#include "answers/answer_grammar.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "testing/expect_error.h"

namespace heddle::answers {
namespace {

using nlohmann::json;
using Kind = AnswerFormat::Kind;

const char* const kTools = R"([
  {"type": "function", "function": {"name": "now", "strict": true, "parameters": {"type": "object",
    "properties": {"zone": {"type": "string"}}, "required": ["zone"]}}},
  {"type": "function", "function": {"name": "add", "parameters": {
    "properties": {"a": {"type": "integer"}}}}},
  {"type": "function", "function": {"name": "roll"}}])";

ToolRequest request_of(ToolChoice choice, StrictLevel strict = StrictLevel::kAuto) {
  return {.tools = JsonValue(kTools), .choice = choice, .function = "now", .strict = strict};
}

AnswerStyle style_of(ToolFormat format, std::string_view marks = "") {
  AnswerStyle style{.tools = format};
  if (!marks.empty()) style.reasoning = *reasoning_named(marks);
  style.reasoning.is_on = !marks.empty();
  return style;
}

json format_of(const AnswerStyle& style, const ToolRequest& request,
               const AnswerFormat& content = {}) {
  const AnswerFormat format = answer_grammar(style, request, content);
  EXPECT_EQ(format.kind, Kind::kStructuralTag);
  const json tag = json::parse(format.source);
  EXPECT_EQ(tag["type"], "structural_tag");
  return tag["format"];
}

/// Whether the schema in a tag is that of any object.
bool is_free(const json& tag) { return tag["content"]["json_schema"] == json{{"type", "object"}}; }

TEST(AnswerGrammar, IsFreeWhereNothingBinds) {
  const AnswerStyle style = style_of(ToolFormat::kHermes, "think");
  EXPECT_TRUE(answer_grammar(style, {}, {}).is_free());
  EXPECT_TRUE(
      answer_grammar(style, request_of(ToolChoice::kNone, StrictLevel::kParameter), {}).is_free());
  ToolRequest loose = request_of(ToolChoice::kAuto);
  loose.tools =
      JsonValue(R"([{"type": "function", "function": {"name": "now", "strict": false}}])");
  EXPECT_TRUE(answer_grammar(style, loose, {}).is_free());
  EXPECT_FALSE(answer_grammar(style, request_of(ToolChoice::kAuto), {}).is_free());
  // A template without calls has nothing to hold them to.
  EXPECT_TRUE(
      answer_grammar(style_of(ToolFormat::kNone), request_of(ToolChoice::kAuto), {}).is_free());
}

TEST(AnswerGrammar, LeavesContentAloneWithoutThoughtsAndTools) {
  const AnswerFormat schema{.kind = Kind::kJsonSchema, .source = "{\"type\":  \"object\"}"};
  AnswerStyle style = style_of(ToolFormat::kHermes, "think");
  style.reasoning.is_on = false;
  EXPECT_EQ(answer_grammar(style, {}, schema).kind, Kind::kJsonSchema);
  EXPECT_EQ(answer_grammar(style, {}, schema).source, schema.source);
  const AnswerFormat lark{.kind = Kind::kLark, .source = "start: \"a\""};
  EXPECT_EQ(answer_grammar(style, {}, lark).kind, Kind::kLark);
}

TEST(AnswerGrammar, PutsThoughtsBeforeContent) {
  AnswerStyle style = style_of(ToolFormat::kHermes, "think");
  const AnswerFormat choice{.kind = Kind::kChoice, .choices = {"yes", "no"}};
  json format = format_of(style, {}, choice);
  ASSERT_EQ(format["type"], "sequence");
  EXPECT_EQ(format["elements"][0]["type"], "optional");
  EXPECT_EQ(format["elements"][0]["content"]["elements"][0]["begin"], "<think>");
  EXPECT_EQ(format["elements"][1]["elements"][1]["value"], "no");
  style.reasoning.has_begun = true;
  format = format_of(style, {}, choice);
  EXPECT_EQ(format["elements"][0]["type"], "sequence");
  EXPECT_EQ(format["elements"][0]["elements"][0]["begin"], "");
  EXPECT_EQ(format["elements"][0]["elements"][0]["end"], "</think>");

  const auto content = [&](AnswerFormat given) {
    return format_of(style, {}, given)["elements"][1];
  };
  EXPECT_EQ(content({.kind = Kind::kJson})["json_schema"], json::parse(R"({"type": "object"})"));
  EXPECT_EQ(
      content({.kind = Kind::kJsonSchema, .source = R"({"b": 1, "a": 2})"})["json_schema"].dump(),
      json::parse(R"({"a": 2, "b": 1})").dump());
  EXPECT_EQ(content({.kind = Kind::kRegex, .source = "a+"})["pattern"], "a+");
  EXPECT_EQ(content({.kind = Kind::kRegex})["type"], "or");
  EXPECT_EQ(content({.kind = Kind::kGrammar, .source = "root ::= \"a\""})["grammar"],
            "root ::= \"a\"");
  EXPECT_EQ(
      content({.kind = Kind::kStructuralTag,
               .source = R"({"type": "structural_tag", "format": {"type": "any_text"}})"})["type"],
      "any_text");
  EXPECT_EQ(content({.kind = Kind::kLark, .source = "start: \"a\""}),
            json::parse(R"({"type": "grammar", "syntax": "lark", "grammar": "start: \"a\""})"));
}

TEST(AnswerGrammar, HoldsCallsToTheForm) {
  const json format = format_of(style_of(ToolFormat::kHermes), request_of(ToolChoice::kAuto));
  EXPECT_EQ(format["type"], "triggered_tags");
  EXPECT_EQ(format["triggers"], json::parse(R"(["<tool_call>"])"));
  EXPECT_EQ(format["stop_after_first"], false);
  ASSERT_EQ(format["tags"].size(), 3u);
  EXPECT_EQ(format["tags"][0]["begin"], "<tool_call>\n{\"name\": \"now\", \"arguments\": ");
  EXPECT_EQ(format["tags"][0]["end"], "}\n</tool_call>");
}

TEST(AnswerGrammar, HoldsArgumentsAsStrictSays) {
  const auto are_free = [](ToolChoice choice, StrictLevel strict) {
    const json format = format_of(style_of(ToolFormat::kHermes), request_of(choice, strict));
    std::string result;
    for (const json& tag : format["tags"]) result += is_free(tag) ? 'f' : 'h';
    return result;
  };
  EXPECT_EQ(are_free(ToolChoice::kAuto, StrictLevel::kAuto), "hff");
  EXPECT_EQ(are_free(ToolChoice::kAuto, StrictLevel::kFunction), "hff");
  EXPECT_EQ(are_free(ToolChoice::kAuto, StrictLevel::kParameter), "hhf");
  EXPECT_EQ(are_free(ToolChoice::kRequired, StrictLevel::kAuto), "hhf");
  EXPECT_EQ(are_free(ToolChoice::kFunction, StrictLevel::kAuto), "h");
  ToolRequest loose = request_of(ToolChoice::kRequired);
  loose.tools = JsonValue(R"([{"type": "function", "function": {"name": "now", "strict": false,
    "parameters": {"type": "object", "properties": {"a": {}}}}}])");
  EXPECT_TRUE(is_free(format_of(style_of(ToolFormat::kHermes), loose)["tags"][0]));
  loose.strict = StrictLevel::kParameter;
  EXPECT_FALSE(is_free(format_of(style_of(ToolFormat::kHermes), loose)["tags"][0]));
}

TEST(AnswerGrammar, BoundsTheNumberOfCalls) {
  ToolRequest request = request_of(ToolChoice::kRequired);
  json format = format_of(style_of(ToolFormat::kHermes), request);
  EXPECT_EQ(format["type"], "tags_with_separator");
  EXPECT_EQ(format["at_least_one"], true);
  EXPECT_EQ(format["stop_after_first"], false);
  request.allows_several = false;
  EXPECT_EQ(format_of(style_of(ToolFormat::kHermes), request)["stop_after_first"], true);
  EXPECT_EQ(format_of(style_of(ToolFormat::kMistral), request)["content"]["stop_after_first"],
            true);
  format = format_of(style_of(ToolFormat::kHermes), request_of(ToolChoice::kFunction));
  EXPECT_EQ(format["stop_after_first"], true);
  EXPECT_EQ(format["tags"].size(), 1u);
  request.choice = ToolChoice::kAuto;
  EXPECT_EQ(format_of(style_of(ToolFormat::kHermes), request)["stop_after_first"], true);
}

TEST(AnswerGrammar, KnowsTheFormOfEachFormat) {
  const auto begins = [](ToolFormat format) {
    const json tag = format_of(style_of(format), request_of(ToolChoice::kFunction));
    return tag.contains("tags") ? tag["tags"][0]["begin"] : tag["begin"];
  };
  EXPECT_EQ(begins(ToolFormat::kSmolLm3), "<tool_call>{\"name\": \"now\", \"arguments\": ");
  EXPECT_EQ(begins(ToolFormat::kQwen3Coder), "<tool_call>\n<function=now>\n");
  EXPECT_EQ(begins(ToolFormat::kLlama3Json), "{\"name\": \"now\", \"parameters\": ");
  EXPECT_EQ(begins(ToolFormat::kPythonic), "[");
  EXPECT_EQ(begins(ToolFormat::kMistral), "[TOOL_CALLS][");
  EXPECT_EQ(begins(ToolFormat::kMistralV11), "[TOOL_CALLS]now[ARGS]");
  EXPECT_EQ(begins(ToolFormat::kGranite), "<|tool_call|>[");
  EXPECT_EQ(begins(ToolFormat::kPhi4), "functools[");
  EXPECT_EQ(begins(ToolFormat::kGemma), "```tool_code\n");
  const json text = format_of(style_of(ToolFormat::kPythonic), request_of(ToolChoice::kAuto));
  EXPECT_EQ(text["elements"][1]["excludes"], json::parse(R"(["[now(", "[add(", "[roll("])"));
}

TEST(AnswerGrammar, TakesCallsOrContent) {
  const AnswerFormat content{.kind = Kind::kJsonSchema, .source = R"({"type": "object"})"};
  ToolRequest request = request_of(ToolChoice::kAuto);
  request.tools = JsonValue(R"([{"type": "function", "function": {"name": "now"}}])");
  const json format = format_of(style_of(ToolFormat::kHermes, "think"), request, content);
  const json& both = format["elements"][1];
  EXPECT_EQ(both["type"], "or");
  EXPECT_EQ(both["elements"][0]["type"], "tags_with_separator");
  EXPECT_EQ(both["elements"][1]["type"], "json_schema");
}

TEST(AnswerGrammar, RefusesWrongToolsByName) {
  const auto refuses = [](const char* tools, const char* why) {
    ToolRequest request = request_of(ToolChoice::kRequired);
    request.tools = JsonValue(tools);
    testing::expect_invalid(
        {why}, [&] { (void)answer_grammar(style_of(ToolFormat::kHermes), request, {}); });
  };
  refuses("{}", "tools is an object, expected an array");
  refuses("[]", "tool_choice asks for a call, expected tools");
  refuses("[1]", "tools[0].function is missing");
  refuses(R"([{"function": {}}])", "tools[0].function.name is missing");
  refuses(R"([{"function": {"name": "a b"}}])", "tools[0].function.name is \"a b\"");
  refuses(R"([{"function": {"name": "a", "strict": 1}}])",
          "tools[0].function.strict is an integer");
  refuses(R"([{"function": {"name": "a", "parameters": []}}])",
          "tools[0].function.parameters is an array");
  refuses(R"([{"function": {"name": "a", "parameters": {"type": "string"}}}])",
          "tools[0].function.parameters.type is \"string\", expected \"object\"");
  refuses(R"([{"function": {"name": "a", "parameters": {"properties": 1}}}])",
          "tools[0].function.parameters.properties is an integer");
  ToolRequest request = request_of(ToolChoice::kFunction);
  request.function = "later";
  testing::expect_invalid({"tool_choice is the function 'later'"}, [&] {
    (void)answer_grammar(style_of(ToolFormat::kHermes), request, {});
  });
  testing::expect_unsupported({"--tool-parser"}, [&] {
    (void)answer_grammar(style_of(ToolFormat::kNone), request_of(ToolChoice::kRequired), {});
  });
}

}  // namespace
}  // namespace heddle::answers
