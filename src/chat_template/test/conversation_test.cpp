// What templates see of a conversation, and which template it is.
#include "chat_template/conversation.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "chat_template/chat_templates.h"
#include "expect_error.h"
#include "files/json_text.h"
#include "files/json_value.h"
#include "readers/tree_of.h"

namespace heddle::chat_template {
namespace {

using nlohmann::ordered_json;
using testing::expect_invalid;
using testing::expect_unsupported;

const ordered_json kHello = {{{"role", "user"}, {"content", "Hello"}}};

files::JsonTree doc(const ordered_json& value) { return testing::tree_of(value); }

TEST(Conversation, HasTheVariablesOfTransformers) {
  EXPECT_EQ(files::json_text(*variables_of({.messages = doc(kHello)}, {{"bos_token", "<s>"}})),
            R"({"messages":[{"role":"user","content":"Hello"}],"tools":null,"documents":null,)"
            R"("add_generation_prompt":true,"bos_token":"<s>"})");
  const files::JsonTree variables =
      variables_of({.messages = doc(kHello),
                    .tools = doc({{{"type", "function"}}}),
                    .documents = doc({{{"title", "t"}}}),
                    .kwargs = doc({{"enable_thinking", false}, {"bos_token", "[B]"}}),
                    .add_generation_prompt = false},
                   {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  EXPECT_EQ(files::json_text(*variables),
            R"({"messages":[{"role":"user","content":"Hello"}],"tools":[{"type":"function"}],)"
            R"("documents":[{"title":"t"}],"add_generation_prompt":false,"bos_token":"[B]",)"
            R"("eos_token":"</s>","enable_thinking":false})");
}

TEST(Conversation, LeavesOutFieldsThatAreNull) {
  const ordered_json message = {
      {"role", "assistant"}, {"content", nullptr}, {"x", {{"y", nullptr}}}};
  EXPECT_EQ(
      files::json_text(
          variables_of({.messages = doc(ordered_json::array({message}))}, {})->at("messages")),
      R"([{"role":"assistant","x":{"y":null}}])");
}

TEST(Conversation, FillsTheNamesOfReasoning) {
  const auto messages_of = [](const char* message) {
    const auto variables =
        variables_of({.messages = doc(ordered_json::array({ordered_json::parse(message)}))}, {});
    return files::json_text(variables->at("messages").at(0));
  };
  EXPECT_EQ(messages_of(R"({"role":"a","reasoning":"r"})"),
            R"({"thinking":"r","role":"a","reasoning":"r","reasoning_content":"r"})");
  EXPECT_EQ(messages_of(R"({"thinking":"t","reasoning":"r"})"),
            R"({"thinking":"t","reasoning":"r","reasoning_content":"t"})");
  EXPECT_EQ(messages_of(R"({"reasoning_content":"c","thinking":"t"})"),
            R"({"reasoning_content":"c","thinking":"t"})");
  EXPECT_EQ(messages_of(R"({"reasoning_content":null,"thinking":""})"),
            R"({"thinking":"","reasoning_content":""})");
}

TEST(Conversation, RefusesFieldsOfOtherTypesByName) {
  const auto expect_refused = [](std::initializer_list<const char*> parts,
                                 const Conversation& given) {
    expect_invalid(parts, [&] { (void)variables_of(given, {}); });
  };
  expect_refused({"messages is null, expected an array"}, {});
  expect_refused({"messages is empty"}, {.messages = doc(ordered_json::array())});
  expect_refused({"messages[0] is string, expected an object"},
                 {.messages = doc(ordered_json::array({"a"}))});
  expect_refused({"tools is object, expected an array"},
                 {.messages = doc(kHello), .tools = doc({{"a", 1}})});
  expect_refused({"tools[1] is number"},
                 {.messages = doc(kHello), .tools = doc({ordered_json::object(), 1})});
  expect_refused({"documents[0] is string"},
                 {.messages = doc(kHello), .documents = doc(ordered_json::array({"a"}))});
  expect_refused({"chat_template_kwargs is boolean"},
                 {.messages = doc(kHello), .kwargs = doc(true)});
  for (const char* name : {"messages", "tools", "documents", "add_generation_prompt", "tokenize"}) {
    expect_refused({"chat_template_kwargs holds", name},
                   {.messages = doc(kHello), .kwargs = doc({{name, 1}})});
  }
}

TEST(ChatTemplates, UsesToolUseForConversationsWithTools) {
  const auto render = [](const ChatTemplates& templates, const ordered_json& tools) {
    return templates.render({.messages = doc(kHello), .tools = doc(tools)}, {});
  };
  const auto both = ChatTemplates::from(
      {{"default", "D{{ tools }}"}, {"tool_use", "T{{ tools }}"}, {"rag", "{{ not parsed"}});
  EXPECT_EQ(render(both, nullptr), "DNone");
  EXPECT_EQ(render(both, ordered_json::array()), "T[]");
  const auto one = ChatTemplates::from({{"default", "D{{ tools }}"}});
  EXPECT_EQ(render(one, ordered_json::array()), "D[]");
  EXPECT_FALSE(one.empty());
  EXPECT_TRUE(ChatTemplates().empty());
}

TEST(ChatTemplates, NamesTheTemplatesWhereNoneIsForTheConversation) {
  const auto tools =
      ChatTemplates::from({{"tool_use", "T"}, {"rag", "R"}}, "m.gguf: chat template");
  expect_unsupported({"no chat template named \"default\"; there are 'rag', 'tool_use'"},
                     [&] { (void)tools.pick(false); });
  EXPECT_NO_THROW((void)tools.pick(true));
  expect_unsupported({"no chat template named"}, [] { (void)ChatTemplates().pick(true); });
  expect_unsupported({"mine (tool_use), line 1: unknown filter 'foo'"}, [] {
    (void)ChatTemplates::from({{"tool_use", "{{ 1 | foo }}"}}, "mine");
  });
}

}  // namespace
}  // namespace heddle::chat_template
