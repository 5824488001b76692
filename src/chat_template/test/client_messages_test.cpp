// Messages as clients send them, in the form that a template reads.
#include "chat_template/client_messages.h"

#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "chat_template/chat_templates.h"
#include "expect_error.h"

namespace heddle::chat_template {
namespace {

using testing::expect_invalid;

constexpr const char* kText =
    "{% for m in messages %}[{{ m['role'] }}:{{ m['content'] }}]{% endfor %}";
constexpr const char* kParts =
    "{% for m in messages %}[{{ m.role }}:{% for c in m['content'] %}<{{ c.text }}>{% endfor %}]"
    "{% endfor %}";
constexpr const char* kBoth =
    "{% for m in messages %}{% if m.content is string %}[{{ m.content }}]{% else %}"
    "{% for c in m.content %}<{{ c['text'] }}>{% endfor %}{% endif %}{% endfor %}";
constexpr const char* kCalls =
    "{% for m in messages %}{% for t in m.tool_calls %}{{ t.function.arguments | tojson }}{% "
    "endfor %}"
    "{% endfor %}";

files::JsonTree doc(const char* text) { return files::parse_json(text, "conversation"); }

std::string render(const char* source, const char* messages, const char* tools = "null",
                   const char* documents = "null") {
  return ChatTemplates::from({{"default", source}})
      .render({.messages = doc(messages),
               .tools = doc(tools),
               .documents = doc(documents),
               .is_from_client = true},
              {});
}

TemplateFacts facts(const char* source) { return ChatTemplate::parse(source).facts(); }

TEST(TemplateFacts, TellWhetherATemplateGoesOverParts) {
  for (const char* source :
       {kParts, kBoth,
        "{% for x in messages[1:] %}{% for c in x.content | list %}{% endfor %}{% endfor %}",
        "{% set rest = messages[1:] %}{% for m in rest %}{% for c in m['content'] %}{% endfor %}"
        "{% endfor %}",
        "{% for m in messages %}{% set parts = m.content %}{% for c in parts %}{% endfor %}{% "
        "endfor %}",
        "{% for c in messages[0]['content'] %}{{ c }}{% endfor %}",
        "{{ messages[0].content[0].text }}"}) {
    EXPECT_TRUE(facts(source).iterates_content) << source;
  }
  for (const char* source :
       {kText, kCalls, "{% for c in content %}{% endfor %}",
        "{% for m in messages %}{% for c in m.tool_calls %}{{ c }}{% endfor %}{% endfor %}"}) {
    EXPECT_FALSE(facts(source).iterates_content) << source;
  }
  EXPECT_TRUE(facts(kBoth).tests_strings);
  EXPECT_FALSE(facts(kParts).tests_strings);
}

TEST(TemplateFacts, TellWhichVariablesAreRead) {
  EXPECT_TRUE(facts("{% if tools is defined and tools %}{% endif %}").reads_tools);
  EXPECT_TRUE(facts("{% macro f() %}{{ tools | tojson }}{% endmacro %}").reads_tools);
  EXPECT_FALSE(facts("tools{{ m.tools }}{{ 'tools' }}").reads_tools);
  EXPECT_TRUE(facts("{% for d in documents %}{% endfor %}").reads_documents);
  EXPECT_FALSE(facts(kText).reads_documents);
  EXPECT_TRUE(facts("{% if m.role == 'developer' %}{% endif %}").knows_developers);
  EXPECT_FALSE(facts(kText).knows_developers);
  EXPECT_TRUE(facts("{% if reasoning_effort %}{% endif %}").reads_effort);
  EXPECT_FALSE(facts("reasoning_effort{{ m.reasoning_effort }}").reads_effort);
}

/// A hostile source: each assignment is seen a pass later than the one that follows it.
TEST(TemplateFacts, TakeTimeInProportionToTheSource) {
  std::string source;
  constexpr int kSets = 20000;
  for (int i = 0; i < kSets; ++i) {
    const std::string from = i + 1 == kSets ? "messages" : "v" + std::to_string(i + 1);
    source += "{% set v" + std::to_string(i) + " = " + from + " %}";
  }
  EXPECT_FALSE(ChatTemplate::parse(source).facts().iterates_content);
}

TEST(ClientMessages, PartsAreOneTextWhereTheTemplateWantsThat) {
  const char* messages =
      R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
          {"role": "user", "content": []}, {"role": "user", "content": "c"}])";
  EXPECT_EQ(render(kText, messages), "[user:a\nb][user:][user:c]");
  EXPECT_EQ(render(kBoth, messages), "<a><b>[c]");
  EXPECT_EQ(render(kParts, messages), "[user:<a><b>][user:][user:<c>]");
}

TEST(ClientMessages, MissingContentIsEmpty) {
  for (const char* content : {R"("content": null,)", R"("content": "",)", ""}) {
    const std::string messages = std::string(R"([{"role": "assistant", )") + content +
                                 R"("tool_calls": [{"function": {"name": "f"}}]}])";
    EXPECT_EQ(render(kText, messages.c_str()), "[assistant:]");
    EXPECT_EQ(render("{{ 'a' + messages[0]['content'] + 'b' }}", messages.c_str()), "ab");
  }
}

TEST(ClientMessages, ArgumentsAreObjectsWhereTheTemplateCanHaveThem) {
  const auto with = [](const char* arguments) {
    return R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": )" +
           std::string(arguments) + "}}]}]";
  };
  EXPECT_EQ(render(kCalls, with(R"("{\"a\": [1, {\"b\": null}]}")").c_str()),
            R"({"a": [1, {"b": null}]})");
  EXPECT_EQ(render(kCalls, with(R"({"a": 1})").c_str()), R"({"a": 1})");
  EXPECT_EQ(render(kCalls, with(R"("")").c_str()), "{}");
  EXPECT_EQ(render(kCalls, with(R"("{\"a\": ")").c_str()), R"("{\"a\": ")") << "what is no JSON";
  EXPECT_EQ(render(kCalls, with(R"("[1]")").c_str()), R"("[1]")");
  const char* joins = "{{ 'x' + messages[0].tool_calls[0].function.arguments }}";
  EXPECT_EQ(render(joins, with(R"("{\"a\":  1}")").c_str()), R"(x{"a":  1})") << "as written";
  expect_invalid({"chat template, line 1"}, [&] { (void)render(joins, with("{}").c_str()); });
}

TEST(ClientMessages, IdsAreShortWhereTheTemplateRefusesOthers) {
  constexpr const char* kMistral =
      "{% for m in messages %}{% for t in m.tool_calls or [] %}{% if t.id | length != 9 %}"
      "{{ raise_exception('Tool call IDs should be alphanumeric strings with length 9!') }}"
      "{% endif %}<{{ t.id }}>{% endfor %}{{ m.tool_call_id }}{% endfor %}";
  const auto with = [](const std::string& id) {
    return R"([{"role": "assistant", "tool_calls": [{"id": ")" + id +
           R"(", "function": {"name": "f", "arguments": "{}"}}]},
               {"role": "tool", "tool_call_id": ")" +
           id + R"(", "content": "1"}])";
  };
  EXPECT_EQ(render(kMistral, with("aB3456789").c_str()), "<aB3456789>aB3456789");
  EXPECT_EQ(render(kMistral, with("call_0123456789abcdef").c_str()), "<789abcdef>789abcdef");
  EXPECT_EQ(render(kMistral, with("call-1").c_str()), "<0000call1>0000call1");
  EXPECT_EQ(render("{{ messages[1].tool_call_id }}", with("call_1").c_str()), "call_1");
}

TEST(ClientMessages, NoCallsAreNone) {
  const char* source = "{{ messages[0].tool_calls is defined }}";
  EXPECT_EQ(render(source, R"([{"role": "assistant", "content": "", "tool_calls": []}])"), "False");
}

TEST(ClientMessages, DevelopersAreTheSystemToTemplatesThatKnowNone) {
  const char* messages = R"([{"role": "developer", "content": "x"}])";
  EXPECT_EQ(render(kText, messages), "[system:x]");
  EXPECT_EQ(render("{% if messages[0].role == 'developer' %}D{% endif %}", messages), "D");
  EXPECT_EQ(render(kText, R"([{"role": "function", "content": "x"}])"), "[function:x]");
}

TEST(ClientMessages, WhatTheTemplateDoesNotReadIsRefused) {
  const char* messages = R"([{"role": "user", "content": "x"}])";
  expect_invalid({"tools: the model's chat template has no place for tools"},
                 [&] { (void)render(kText, messages, R"([{"a": 1}])"); });
  expect_invalid({"documents: the model's chat template has no place for documents"},
                 [&] { (void)render(kText, messages, "null", R"([{"a": 1}])"); });
  EXPECT_EQ(render(kText, messages, "[]", "[]"), "[user:x]");
  EXPECT_EQ(render("{{ tools | length }}", messages, R"([{"a": 1}])"), "1");
}

TEST(ClientMessages, OthersStayAsTheyAre) {
  const auto templates = ChatTemplates::from({{"default", "{{ messages[0] | tojson }}"}});
  const char* messages =
      R"([{"role": "developer", "content": [{"type": "text", "text": "a"}], "tool_calls": []}])";
  EXPECT_EQ(
      templates.render({.messages = doc(messages), .tools = doc(R"([{"a": 1}])")}, {}),
      R"({"role": "developer", "content": [{"type": "text", "text": "a"}], "tool_calls": []})");
}

}  // namespace
}  // namespace heddle::chat_template
