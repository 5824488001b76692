#include "answers/answer_style.h"

#include <gtest/gtest.h>

namespace heddle::answers {
namespace {

TEST(AnswerStyle, FindsFormatOfTemplates) {
  const auto format = [](std::string_view source) {
    return std::string(name(style_of_template(source).tools));
  };
  EXPECT_EQ(format("{{ messages[0].content }}"), "none");
  EXPECT_EQ(
      format(R"({{- "<tool_call>\n{\"name\": <name>, \"arguments\": <args>}\n</tool_call>" }})"),
      "hermes");
  EXPECT_EQ(format("{{- '\\n<tool_call>\\n{\"name\": \"' + call.name + '\", \"arguments\": ' }}"),
            "hermes");
  EXPECT_EQ(format("{% if xml_tools %}<tool_call>{\"name\": \"\", \"arguments\": {}}</tool_call>"),
            "smollm3");
  EXPECT_EQ(format("'<tool_call>\\n<function=' + call.name '<parameter=' + key '</parameter>'"),
            "qwen3_coder");
  EXPECT_EQ(format("Respond with {\"name\": a name, \"parameters\": dictionary of argument name}"),
            "llama3_json");
  EXPECT_EQ(format("put it in the format of [func_name1(params_name1=params_value1...)]"),
            "pythonic");
  EXPECT_EQ(format("{{ '[TOOL_CALLS][' }}"), "mistral");
  EXPECT_EQ(format("{{ '[TOOL_CALLS]' + call.name + '[ARGS]' + arguments }}"), "mistral_v11");
  EXPECT_EQ(format("<|start_of_role|>system<|end_of_role|> respond only with <|tool_call|>"),
            "granite");
  EXPECT_EQ(format("'<|tool|>' + message['tools'] + '<|/tool|>'"), "phi4");
  EXPECT_EQ(format("functools[{\"name\": ...}]"), "phi4");
  EXPECT_EQ(format("wrap it in ```tool_code"), "gemma");
}

TEST(AnswerStyle, LeavesOtherFormatsAlone) {
  for (const std::string_view source :
       {"<tool_call>{name}\n<arg_key>k</arg_key><arg_value>v</arg_value>\"arguments\"",
        "<tool_calls>[{\"name\": \"\", \"arguments\": {}}]</tool_calls> <tool_call>",
        "<|python_tag|> <function=example>{\"parameters\": 1}</function>",
        "<|tool_calls_begin|>"}) {
    EXPECT_EQ(style_of_template(source).tools, ToolFormat::kNone) << source;
  }
}

TEST(AnswerStyle, FindsMarksOfThoughts) {
  const auto marks = [](std::string_view source) {
    const ReasoningStyle found = style_of_template(source).reasoning;
    return found.begin + " " + found.end + " " + found.text_begin + " " + found.text_end;
  };
  EXPECT_EQ(marks("nothing of it"), "   ");
  EXPECT_EQ(marks("content.split('</think>')"), "<think> </think>  ");
  EXPECT_EQ(marks("'[THINK]' + thinking + '[/THINK]'"), "[THINK] [/THINK]  ");
  EXPECT_EQ(marks("between <think></think> and between <response></response>"),
            "<think> </think> <response> </response>");
  EXPECT_EQ(marks("Here is my thought process: a Here is my response: b"),
            "Here is my thought process: Here is my response:  ");
}

TEST(AnswerStyle, SeesWhereThePromptEnds) {
  const AnswerStyle style = style_of_template("</think>");
  const auto state = [&](std::string_view prompt) {
    const ReasoningStyle found = style_of_prompt(style, prompt).reasoning;
    return std::pair(found.has_begun, found.is_on);
  };
  EXPECT_EQ(state("<|im_start|>assistant\n"), std::pair(false, true));
  EXPECT_EQ(state("<|im_start|>assistant\n<think>\n"), std::pair(true, true));
  EXPECT_EQ(state("<|im_start|>assistant\n<think>\n\n</think>\n\n"), std::pair(false, false));
  EXPECT_EQ(state("<|Assistant|></think>"), std::pair(false, false));
  EXPECT_EQ(state("use <think> </think> <think> and then\nassistant\n"), std::pair(false, true));
  EXPECT_EQ(state(""), std::pair(false, true));
  const ReasoningStyle none = style_of_prompt({}, "a").reasoning;
  EXPECT_FALSE(none.has_begun);
  EXPECT_FALSE(none.is_on);
}

TEST(AnswerStyle, HasNamesForFormatsAndMarks) {
  for (const std::string_view known : tool_format_names()) {
    const std::optional<ToolFormat> format = tool_format_named(known);
    ASSERT_TRUE(format.has_value()) << known;
    EXPECT_EQ(tool_format_named(name(*format)), format) << known;
  }
  EXPECT_EQ(tool_format_named("llama4_pythonic"), ToolFormat::kPythonic);
  EXPECT_EQ(tool_format_named("qwen25"), ToolFormat::kHermes);
  EXPECT_EQ(tool_format_named("nothing"), std::nullopt);
  EXPECT_EQ(name(ToolFormat::kNone), "none");
  for (const std::string_view known : reasoning_names()) {
    ASSERT_TRUE(reasoning_named(known).has_value()) << known;
    EXPECT_FALSE(reasoning_named(known)->end.empty());
  }
  EXPECT_EQ(reasoning_named("deepseek-r1")->begin, "<think>");
  EXPECT_FALSE(reasoning_named("nothing").has_value());
}

}  // namespace
}  // namespace heddle::answers
