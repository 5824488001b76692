// Answers and what is in them, for the tests of the parser.
#pragma once

#include <string>
#include <vector>

#include "answers/answer_parser.h"

namespace heddle::answers {

struct AnswerCase {
  std::string what;
  ToolFormat format = ToolFormat::kNone;
  std::string text;
  std::string expected;  // as shown() has it
  bool has_begun = false;
};

/// "reasoning|text|now{"zone": "UTC"}": the parts, then each call.
inline std::string shown(const ParsedAnswer& answer) {
  std::string text = answer.reasoning + "|" + answer.text;
  for (const ParsedCall& call : answer.calls) text += "|" + call.name + call.arguments;
  return text;
}

inline const char* tools_of_cases() {
  return R"([
    {"type": "function", "function": {"name": "now", "parameters": {"type": "object",
      "properties": {"zone": {"type": "string"}, "count": {"type": "integer"},
                     "exact": {"type": "boolean"}, "range": {"type": "array"},
                     "from": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                     "unit": {"$ref": "#/$defs/Unit"}},
      "$defs": {"Unit": {"enum": ["s", "ms"]}}}}},
    {"type": "function", "function": {"name": "add"}}])";
}

inline const std::vector<AnswerCase>& answer_cases() {
  using enum ToolFormat;
  static const std::vector<AnswerCase> kCases = {
      {"text", kNone, "Hello.\n", "|Hello.\n"},
      {"text with tools", kHermes, " Hello <b>\n", "| Hello <b>\n"},
      {"thoughts", kNone, "<think>\nA <b>.\n</think>\n\nHello\n", "A <b>.|Hello\n"},
      {"thoughts that the prompt began", kNone, "\nA\n\nB\n</think>\nHi", "A\n\nB|Hi", true},
      {"thoughts with the mark again", kNone, "<think>A</think>Hi", "A|Hi", true},
      {"thoughts cut off", kNone, "<think>A </thi", "A </thi|"},
      {"no thoughts", kNone, "<think>\n\n</think>\n\nHi", "|Hi"},
      {"a mark in the text", kNone, "Use <think> here</think>", "|Use <think> here</think>"},
      {"nothing", kHermes, "", "|"},

      {"one call", kHermes,
       "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"zone\": \"UTC\"}}\n</tool_call>",
       "||now{\"zone\": \"UTC\"}"},
      {"thoughts, text and calls", kHermes,
       "<think>\nHm </tool_call>\n</think>\n\nSure. \n<tool_call>\n{\"name\": \"now\", "
       "\"arguments\": "
       "{}}\n</tool_call>\n<tool_call>\n{\"arguments\": {\"a\": [1, {}]}, \"name\": \"add\"}\n"
       "</tool_call>\n Done. ",
       "Hm </tool_call>|Sure. \nDone. |now{}|add{\"a\": [1, {}]}"},
      {"a call in thoughts", kHermes,
       "<think><tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call></think>Hi",
       "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>|Hi"},
      {"text right before a call and space after", kHermes,
       "a<tool_call>{\"name\": \"now\"}</tool_call> b<tool_call>{\"name\": \"now\"}</tool_call> <c",
       "|a b <c|now{}|now{}"},
      {"no end", kHermes, "<tool_call>{\"name\": \"now\", \"arguments\": {}}", "||now{}"},
      {"no brace", kHermes, "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": 1}",
       "||now{\"a\": 1}"},
      {"text for an end", kHermes, "<tool_call>{\"name\": \"now\"}\n </tool text",
       "|</tool text|now{}"},
      {"cut in arguments", kHermes, "<tool_call>{\"name\": \"now\", \"arguments\": {\"zone\": \"U",
       "||now{\"zone\": \"U"},
      {"cut before arguments", kHermes, "a <tool_call>{\"name\": \"now\", \"argu",
       "|a <tool_call>{\"name\": \"now\", \"argu"},
      {"line ends in strings", kHermes,
       "<tool_call>{\"name\": \"now\", \"arguments\": {\"zone\": \"a\n\tb\\n\"}}</tool_call>",
       "||now{\"zone\": \"a\\n\\tb\\n\"}"},
      {"arguments as text", kHermes,
       "<tool_call>{\"name\": \"now\", \"arguments\": \"{\\\"zone\\\": \\\"\\\\u00e9\\\"}\"}",
       "||now{\"zone\": \"\\u00e9\"}"},
      {"null for arguments", kHermes, "<tool_call>{\"name\": \"now\", \"arguments\": null}",
       "||now{}"},
      {"further fields", kHermes,
       "<tool_call>{\"id\": [\"}\", {}], \"type\": \"function\", \"name\": \"n\\u006fw\", "
       "\"arguments\": {}, \"id\": -1.5e3}</tool_call>",
       "||now{}"},
      {"a mistake in arguments", kHermes,
       "<tool_call>{\"name\": \"now\", \"arguments\": {zone: 1}}</tool_call><tool_call>{\"name\": "
       "\"add\"}</tool_call>",
       "||now{zone: 1}}|add{}"},
      {"no call", kHermes, "<tool_call>hm</tool_call>", "|<tool_call>hm</tool_call>"},
      {"another object", kHermes, "<tool_call>{\"a\": 1}</tool_call>",
       "|<tool_call>{\"a\": 1}</tool_call>"},
      {"a mark in a mark", kHermes, "<tool_<tool_call><tool_call> {\"name\": \"now\"}",
       "|<tool_<tool_call>|now{}"},
      {"a list of calls", kHermes,
       "<tool_call>[{\"name\": \"now\"}, {\"name\": \"add\"}]</tool_call>!", "|!|now{}|add{}"},
      {"XML for objects", kHermes, "<tool_call>\n<function=now>\n</function>\n</tool_call>",
       "||now{}"},

      {"XML", kQwen3Coder,
       "Hi\n<tool_call>\n<function=now>\n<parameter=zone>\nU\"T\nC\n</parameter>\n<parameter=count>"
       "\n5\n</parameter>\n<parameter=exact>True</parameter><parameter=range>\n[1, 'a']\n"
       "</parameter>\n<parameter=from>\nnull\n</parameter>\n<parameter=unit>\ns\n</parameter>\n"
       "<parameter=new>\n{\"a\": 1}\n</parameter>\n</function>\n</tool_call>\n",
       "|Hi|now{\"zone\": \"U\\\"T\\nC\", \"count\": 5, \"exact\": true, \"range\": [1, \"a\"], "
       "\"from\": null, \"unit\": \"s\", \"new\": {\"a\": 1}}"},
      {"XML with texts for other types", kQwen3Coder,
       "<tool_call><function=now><parameter=zone>5</parameter><parameter=count>\nmany\n</parameter>"
       "</function></tool_call><tool_call><function=add></tool_call>",
       "||now{\"zone\": \"5\", \"count\": \"many\"}|add{}"},
      {"XML without the first line", kQwen3Coder,
       "<function=now>\n<parameter=zone>\n</param\n\n</parameter>\n</function>\n</tool_call>",
       "||now{\"zone\": \"</param\\n\"}"},
      {"XML cut off", kQwen3Coder,
       "<tool_call>\n<function=now>\n<parameter=count>\n5\n</parameter>\n<parameter=count>\n1",
       "||now{\"count\": 5"},
      {"XML that is none", kQwen3Coder, "<function=now> <b></b>", "|<function=now> <b></b>"},
      {"XML with text in a call", kQwen3Coder,
       "<function=now></function> x <function=add><parameter=a>"
       "1</parameter>y</function>",
       "|x y</function>|now{}|add{\"a\": 1}"},

      {"an object", kLlama3Json, "{\"name\": \"now\", \"parameters\": {\"zone\": \"UTC\"}}",
       "||now{\"zone\": \"UTC\"}"},
      {"objects", kLlama3Json,
       "{\"name\": \"now\", \"parameters\": {}}; {\"name\": \"add\", \"parameters\": {}}; ",
       "||now{}|add{}"},
      {"text after objects", kLlama3Json, "{\"name\": \"now\"}; then\n", "|; then\n|now{}"},
      {"a mark of code", kLlama3Json, "<|python_tag|>{\"name\": \"other\", \"parameters\": {}}",
       "||other{}"},
      {"an unknown tool", kLlama3Json, "{\"name\": \"other\", \"parameters\": {}}",
       "|{\"name\": \"other\", \"parameters\": {}}"},
      {"an object in a line", kLlama3Json, "It is {\"name\": \"now\"}\n\n {\"name\": \"now\"}",
       "|It is {\"name\": \"now\"}|now{}"},
      {"JSON", kLlama3Json, "{\"a\": {\"name\": \"now\", \"parameters\": {}}}",
       "|{\"a\": {\"name\": \"now\", \"parameters\": {}}}"},

      {"a list in Python", kPythonic,
       "[now(zone='U\\'T', count=-1.5, range=[1, (2,), {'a': None}], exact=True), add()]",
       "||now{\"zone\": \"U'T\", \"count\": -1.5, \"range\": [1, [2], {\"a\": null}], "
       "\"exact\": true}|add{}"},
      {"marks around Python", kPythonic,
       "<|python_start|>[now(zone=\"]\\n\u00e9\")]<|python_end|> Hi",
       "|Hi|now{\"zone\": \"]\\n\u00e9\"}"},
      {"a list that is none", kPythonic, "[1, 2] [now()]\n[now() is]",
       "|[1, 2] [now()]\n[now() is]"},
      {"arguments without names", kPythonic, "[now(1)]", "|[now(1)]"},
      {"an unknown function", kPythonic, "[now(), other()]", "|[now(), other()]"},
      {"Python cut off", kPythonic, "[now(), add(", "|[now(), add("},

      {"a list", kMistral,
       "Hi[TOOL_CALLS] [{\"name\": \"now\", \"arguments\": {}}, {\"name\": "
       "\"add\", \"arguments\": {\"a\": 1}, \"id\": \"x\"}]",
       "|Hi|now{}|add{\"a\": 1}"},
      {"a list with a mistake", kMistral, "[TOOL_CALLS][{\"name\": \"now\"}, {\"a\": 1}]!",
       "|, {\"a\": 1}]!|now{}"},
      {"named", kMistral, "[TOOL_CALLS]now[ARGS]{\"zone\": \"]\"}[TOOL_CALLS]add{}",
       "||now{\"zone\": \"]\"}|add{}"},
      {"named with ids", kMistralV11,
       "[TOOL_CALLS]now[CALL_ID]a1[ARGS]{} [TOOL_CALLS] add [ARGS] {}", "||now{}|add{}"},
      {"named that is none", kMistralV11, "[TOOL_CALLS]now is [TOOL_CALLS]",
       "|[TOOL_CALLS]now is [TOOL_CALLS]"},

      {"Granite", kGranite, "<|tool_call|>[{\"name\": \"now\", \"arguments\": {}}]", "||now{}"},
      {"Granite of 3.0", kGranite, "<tool_call>[{\"name\": \"now\", \"arguments\": {}}]",
       "||now{}"},
      {"Phi", kPhi4, "functools[{\"name\": \"now\", \"arguments\": {}}, {\"name\": \"add\"}]",
       "||now{}|add{}"},
      {"Phi with marks", kPhi4, "<|tool_call|>[{\"name\": \"now\"}]<|/tool_call|>", "||now{}"},
      {"a word", kPhi4, "import functools\n", "|import functools\n"},
      {"code", kGemma, "Sure:\n```tool_code\nnow(zone=\"UTC\")\nadd()\n```\n",
       "|Sure:|now{\"zone\": \"UTC\"}|add{}"},
      {"a list in code", kGemma, "```tool_code\n[now(), add()]```", "||now{}|add{}"},
      {"code that is none", kGemma, "```tool_code\nprint(1)\n```\n",
       "|```tool_code\nprint(1)\n```\n"},
      {"SmolLM3", kSmolLm3, "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>",
       "||now{}"},
  };
  return kCases;
}

inline AnswerStyle style_of_case(const AnswerCase& one) {
  AnswerStyle style{one.format, *reasoning_named("think")};
  style.reasoning.has_begun = one.has_begun;
  return style;
}

inline ParserOptions options_of_case(const AnswerCase& one) {
  ParserOptions options;
  if (one.format != ToolFormat::kNone) find_tools(options, tools_of_cases());
  options.finds_reasoning = true;
  return options;
}

}  // namespace heddle::answers
