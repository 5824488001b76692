// What the grammars of calls accept and refuse, and that the parser finds the calls in it.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "answers/answer_grammar.h"
#include "answers/answer_parser.h"
#include "engine/rules/grammar/grammar_library.h"

namespace heddle::answers {
namespace {

enum class Verdict { kRefused, kBeginning, kWhole };

constexpr const char* kToolList = R"([
  {"type": "function", "function": {"name": "now", "strict": true, "parameters": {"type": "object",
    "properties": {"zone": {"type": "string"}, "count": {"type": "integer"},
                   "unit": {"$ref": "#/$defs/Unit"}, "from": {"anyOf": [{"type": "number"}, {"type": "null"}]},
                   "list": {"type": "array", "items": {"type": "boolean"}}},
    "required": ["zone"], "$defs": {"Unit": {"enum": ["s", "ms"]}}}}},
  {"type": "function", "function": {"name": "roll"}}])";

/// How a format writes one call, two, one that breaks the schema, and one of no tool.
struct Samples {
  ToolFormat format;
  std::string one, two, wrong, unknown;
};

const std::vector<Samples>& samples() {
  using enum ToolFormat;
  static const std::vector<Samples> kSamples = {
      {kHermes,
       "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"zone\": \"UTC\"}}\n</tool_call>",
       "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"zone\": \"UTC\", \"unit\": \"ms\", "
       "\"from\": "
       "null}}\n</tool_call>\n<tool_call>\n{\"name\": \"roll\", \"arguments\": {\"a\": "
       "1}}\n</tool_call>",
       "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
       "<tool_call>\n{\"name\": \"nope\""},
      {kSmolLm3, "<tool_call>{\"name\": \"now\", \"arguments\": {\"zone\": \"UTC\"}}</tool_call>",
       "<tool_call>{\"name\": \"now\", \"arguments\": {\"zone\": \"UTC\"}}</tool_call>\n"
       "<tool_call>{\"name\": \"roll\", \"arguments\": {}}</tool_call>",
       "<tool_call>{\"name\": \"now\", \"arguments\": {\"unit\": \"h\"}}</tool_call>",
       "<tool_call>{\"name\": \"nope\""},
      {kQwen3Coder,
       "<tool_call>\n<function=now>\n<parameter=zone>\nUTC\n</parameter>\n</function>\n</"
       "tool_call>",
       "<tool_call>\n<function=now>\n<parameter=zone>\nU\nC\n</parameter>\n<parameter=count>\n5\n"
       "</parameter>\n<parameter=list>\n[true, false]\n</parameter>\n</function>\n</tool_call>\n"
       "<tool_call>\n<function=roll>\n\n</function>\n</tool_call>",
       "<tool_call>\n<function=now>\n<parameter=count>\nx\n</parameter>\n</function>\n</tool_call>",
       "<tool_call>\n<function=nope>"},
      {kLlama3Json, "{\"name\": \"now\", \"parameters\": {\"zone\": \"UTC\"}}",
       "{\"name\": \"now\", \"parameters\": {\"zone\": \"UTC\"}}; {\"name\": \"roll\", "
       "\"parameters\": {}}",
       "{\"name\": \"now\", \"parameters\": {\"count\": 1}}", "{\"name\": \"nope\""},
      {kPythonic, "[now(zone=\"U\\\"TC\")]",
       "[now(zone=\"UTC\", count=-5, unit=\"ms\", from=1.5, list=[True, False]), roll(a=[1, "
       "{\"b\": "
       "None}])]",
       "[now(count=1)]", "[now(zone=\"a\", other=1)]"},
      {kMistral, "[TOOL_CALLS][{\"name\": \"now\", \"arguments\": {\"zone\": \"UTC\"}}]",
       "[TOOL_CALLS][{\"name\": \"now\", \"arguments\": {\"zone\": \"UTC\"}}, {\"name\": \"roll\", "
       "\"arguments\": {}}]",
       "[TOOL_CALLS][{\"name\": \"now\", \"arguments\": {}}]", "[TOOL_CALLS][{\"name\": \"nope\""},
      {kMistralV11, "[TOOL_CALLS]now[ARGS]{\"zone\": \"UTC\"}",
       "[TOOL_CALLS]now[ARGS]{\"zone\": \"UTC\"}[TOOL_CALLS]roll[ARGS]{}",
       "[TOOL_CALLS]now[ARGS]{}", "[TOOL_CALLS]nope"},
      {kGranite, "<|tool_call|>[{\"name\": \"now\", \"arguments\": {\"zone\": \"UTC\"}}]",
       "<|tool_call|>[{\"name\": \"now\", \"arguments\": {\"zone\": \"UTC\"}}, {\"name\": "
       "\"roll\", "
       "\"arguments\": {}}]",
       "<|tool_call|>[{\"name\": \"now\", \"arguments\": {}}]",
       "<|tool_call|>[{\"name\": \"nope\""},
      {kPhi4, "functools[{\"name\": \"now\", \"arguments\": {\"zone\": \"UTC\"}}]",
       "functools[{\"name\": \"now\", \"arguments\": {\"zone\": \"UTC\"}}, {\"name\": \"roll\", "
       "\"arguments\": {}}]",
       "functools[{\"name\": \"now\", \"arguments\": {}}]", "functools[{\"name\": \"nope\""},
      {kGemma, "```tool_code\nnow(zone=\"UTC\")\n```",
       "```tool_code\nnow(zone=\"UTC\")\nroll()\n```", "```tool_code\nnow()\n```",
       "```tool_code\nnope()"},
  };
  return kSamples;
}

class AnswerFormats : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!grammar::has_library()) GTEST_SKIP() << "built without structured output";
    grammar::TokenBytes bytes{.end_tokens = {256}};
    for (int byte = 0; byte < 256; ++byte) bytes.tokens.emplace_back(1, static_cast<char>(byte));
    bytes.tokens.emplace_back();
    tokens_ = grammar::make_token_set(std::move(bytes));
  }
  [[nodiscard]] AnswerStyle style_of(ToolFormat format) const {
    AnswerStyle style{.tools = format};
    if (!thinks_) return style;
    style.reasoning = *reasoning_named("think");
    style.reasoning.is_on = true;
    style.reasoning.has_begun = has_begun_;
    return style;
  }
  [[nodiscard]] Verdict verdict(ToolFormat format, ToolChoice choice, const std::string& text,
                                const AnswerFormat& content = {}) const {
    const ToolRequest request{.tools = JsonValue(kToolList),
                              .choice = choice,
                              .function = "now",
                              .allows_several = allows_several_};
    const AnswerFormat whole = answer_grammar(style_of(format), request, content);
    const auto matcher = grammar::compile(*tokens_, whole)->matcher();
    for (const char byte : text) {
      if (!matcher->accept(static_cast<unsigned char>(byte))) return Verdict::kRefused;
    }
    return matcher->is_complete() ? Verdict::kWhole : Verdict::kBeginning;
  }
  [[nodiscard]] size_t num_calls(ToolFormat format, const std::string& text) const {
    ParserOptions options;
    find_tools(options, JsonValue(kToolList));
    options.finds_reasoning = true;
    const ParsedAnswer answer = parse_answer(style_of(format), options, text);
    EXPECT_EQ(answer.text, "") << text;
    return answer.calls.size();
  }

  std::shared_ptr<const grammar::TokenSet> tokens_;
  bool thinks_ = false, has_begun_ = false, allows_several_ = true;
};

TEST_F(AnswerFormats, AcceptCallsInTheirFormAlone) {
  for (const Samples& each : samples()) {
    SCOPED_TRACE(name(each.format));
    for (const ToolChoice choice : {ToolChoice::kAuto, ToolChoice::kRequired}) {
      EXPECT_EQ(verdict(each.format, choice, each.one), Verdict::kWhole);
      EXPECT_EQ(verdict(each.format, choice, each.two), Verdict::kWhole);
      EXPECT_EQ(verdict(each.format, choice, each.wrong), Verdict::kRefused);
      EXPECT_EQ(verdict(each.format, choice, each.unknown), Verdict::kRefused);
    }
    EXPECT_EQ(verdict(each.format, ToolChoice::kFunction, each.one), Verdict::kWhole);
    EXPECT_EQ(verdict(each.format, ToolChoice::kFunction, each.two), Verdict::kRefused);
    EXPECT_EQ(verdict(each.format, ToolChoice::kRequired, "Hello"), Verdict::kRefused);
    EXPECT_EQ(verdict(each.format, ToolChoice::kAuto, "Hello {} [a] <b>\n"), Verdict::kWhole);
    EXPECT_EQ(num_calls(each.format, each.one), 1u);
    EXPECT_EQ(num_calls(each.format, each.two), 2u);
  }
}

TEST_F(AnswerFormats, AcceptOneCallWhereTheRequestSaysSo) {
  allows_several_ = false;
  for (const Samples& each : samples()) {
    SCOPED_TRACE(name(each.format));
    for (const ToolChoice choice : {ToolChoice::kAuto, ToolChoice::kRequired}) {
      EXPECT_EQ(verdict(each.format, choice, each.one), Verdict::kWhole);
      EXPECT_EQ(verdict(each.format, choice, each.two), Verdict::kRefused);
    }
  }
}

TEST_F(AnswerFormats, AcceptAnyThoughtsBefore) {
  thinks_ = true;
  for (const bool has_begun : {false, true}) {
    has_begun_ = has_begun;
    const std::string thoughts = std::string(has_begun ? "" : "<think>\n") + "Hm ";
    for (const Samples& each : samples()) {
      SCOPED_TRACE(name(each.format));
      const std::string before = thoughts + each.unknown + "\n</think>\n\n";
      for (const ToolChoice choice : {ToolChoice::kAuto, ToolChoice::kRequired}) {
        EXPECT_EQ(verdict(each.format, choice, before + each.two), Verdict::kWhole);
        EXPECT_EQ(num_calls(each.format, before + each.two), 2u);
      }
      EXPECT_EQ(verdict(each.format, ToolChoice::kRequired, before + each.wrong),
                Verdict::kRefused);
      EXPECT_EQ(verdict(each.format, ToolChoice::kRequired, thoughts), Verdict::kBeginning);
    }
  }
}

TEST_F(AnswerFormats, AcceptCallsOrContentOfItsFormat) {
  thinks_ = true;
  const AnswerFormat schema{
      .kind = AnswerFormat::Kind::kJsonSchema,
      .source = R"({"type": "object", "properties": {"a": {"type": "integer"}},
                                         "required": ["a"]})"};
  const std::string thoughts = "<think>x</think>\n";
  for (const Samples& each : samples()) {
    SCOPED_TRACE(name(each.format));
    const auto of_auto = [&](const std::string& text) {
      return verdict(each.format, ToolChoice::kAuto, thoughts + text, schema);
    };
    EXPECT_EQ(of_auto("{\"a\": 1}"), Verdict::kWhole);
    EXPECT_EQ(of_auto(each.two), Verdict::kWhole);
    EXPECT_EQ(of_auto("Hello"), Verdict::kRefused);
    EXPECT_EQ(of_auto("{\"b\": 1}"), Verdict::kRefused);
  }
  const auto of_content = [&](AnswerFormat::Kind kind, const std::string& source,
                              const std::string& text) {
    return verdict(ToolFormat::kNone, ToolChoice::kNone, thoughts + text,
                   {.kind = kind, .source = source, .choices = {"yes", "no"}});
  };
  using Kind = AnswerFormat::Kind;
  EXPECT_EQ(of_content(Kind::kJson, "", "{\"b\": [1]}"), Verdict::kWhole);
  EXPECT_EQ(of_content(Kind::kJson, "", "[1]"), Verdict::kRefused);
  EXPECT_EQ(of_content(Kind::kRegex, "[ab]+", "ab"), Verdict::kWhole);
  EXPECT_EQ(of_content(Kind::kRegex, "[ab]+", "c"), Verdict::kRefused);
  EXPECT_EQ(of_content(Kind::kChoice, "", "no"), Verdict::kWhole);
  EXPECT_EQ(of_content(Kind::kChoice, "", "maybe"), Verdict::kRefused);
  EXPECT_EQ(of_content(Kind::kLark, "start: \"x\" | \"y\" start", "yyx"), Verdict::kWhole);
  EXPECT_EQ(of_content(Kind::kLark, "start: \"x\" | \"y\" start", "yz"), Verdict::kRefused);
  EXPECT_EQ(of_content(Kind::kGrammar, "root ::= \"a\" | \"b\" root", "bba"), Verdict::kWhole);
  EXPECT_EQ(
      of_content(Kind::kStructuralTag,
                 R"({"type": "structural_tag", "format": {"type": "const_string", "value": "x"}})",
                 "x"),
      Verdict::kWhole);
}

}  // namespace
}  // namespace heddle::answers
