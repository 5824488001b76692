// What /v1/responses and /v1/messages make of requests.
#include <algorithm>
#include <string>
#include <utility>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "heddle/core/error.h"

#include "api/api_error.h"
#include "messages/request.h"
#include "responses/request.h"

namespace heddle::serve {
namespace {

using Tree = nlohmann::ordered_json;

/// The conversation that a body became.
Tree conversation(const Request& request) {
  if (!request.messages_json.empty()) return Tree::parse(request.messages_json.text());
  Tree messages = Tree::array();
  for (const Message& message : request.messages) {
    messages.push_back({{"role", message.role}, {"content", message.content}});
  }
  return messages;
}

Tree responses_conversation(const char* body) {
  ResponseStore store(0, 0);
  return conversation(read_responses(body, {}, store, {}).generation.prompts.front());
}
Tree messages_conversation(const char* body) {
  return conversation(read_messages_request(body, {}).generation.prompts.front());
}

TEST(ReadResponses, ItemsOfOneTurnAreOneMessage) {
  EXPECT_EQ(responses_conversation(R"({"input": "Hi", "instructions": "Be short."})"),
            Tree::parse(R"([{"role": "system", "content": "Be short."},
                            {"role": "user", "content": "Hi"}])"));
  const Tree all = responses_conversation(R"({"input": [
    {"role": "developer", "content": [{"type": "input_text", "text": "D"}]},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "U"},
                                                     {"type": "input_text", "text": "V"}]},
    {"type": "reasoning", "id": "rs_1", "summary": [],
     "content": [{"type": "reasoning_text", "text": "R"}]},
    {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
     "content": [{"type": "output_text", "text": "A", "annotations": [], "logprobs": []}]},
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}"},
    {"type": "function_call", "call_id": "c2", "name": "g", "arguments": "{\"x\": 1}"},
    {"type": "function_call_output", "call_id": "c1", "output": "one"},
    {"type": "function_call_output", "call_id": "c2",
     "output": [{"type": "input_text", "text": "two"}]}]})");
  ASSERT_EQ(all.size(), 5u) << all.dump();
  EXPECT_EQ(all[0], Tree::parse(R"({"role": "developer", "content": "D"})"));
  EXPECT_EQ(all[1].at("content").size(), 2u);
  EXPECT_EQ(all[2].at("reasoning_content"), "R");
  EXPECT_EQ(all[2].at("content"), "A");
  EXPECT_EQ(all[2].at("tool_calls").size(), 2u);
  EXPECT_EQ(all[2].at("tool_calls")[1].at("function").at("arguments"), "{\"x\": 1}");
  EXPECT_EQ(all[3], Tree::parse(R"({"role": "tool", "tool_call_id": "c1", "content": "one"})"));
  EXPECT_EQ(all[4].at("content"), "two");
}

/// The field that the refusal names; empty: it was not refused.
std::string refused(const auto& read) {
  try {
    (void)read();
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status(), 400u);
    return error.param();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(ReadResponses, WhatIsWrongIsNamed) {
  const std::pair<const char*, const char*> kCases[] = {
      {R"({})", "input"},
      {R"({"input": []})", "input"},
      {R"({"input": [{"type": "item_reference", "id": "x"}]})", "input[0]"},
      {R"({"input": [{"role": "user", "content": [{"type": "input_image"}]}]})",
       "input[0].content[0]"},
      {R"({"input": [{"role": "tool", "content": "x"}]})", "input[0]"},
      {R"({"input": [{"role": "user", "content": "x", "who": 1}]})", "input[0]"},
      {R"({"input": "x", "max_output_tokens": 0})", "max_output_tokens"},
      {R"({"input": "x", "max_output_tokens": 2.5})", "max_output_tokens"},
      {R"({"input": "x", "background": true})", "background"},
      {R"({"input": "x", "conversation": "conv_1"})", "conversation"},
      {R"({"input": "x", "prompt": {"id": "p"}})", "prompt"},
      {R"({"input": "x", "previous_response_id": "resp_1"})", "previous_response_id"},
      {R"({"input": "x", "tools": [{"type": "web_search"}]})", "tools[0]"},
      {R"({"input": "x", "tools": [{"type": "function"}]})", "tools[0]"},
      {R"({"input": "x", "tool_choice": "required"})", "tool_choice"},
      {R"({"input": "x", "text": {"format": {"type": "xml"}}})", "text.format"},
      {R"({"input": "x", "text": {"format": {"type": "json_schema", "name": "a"}}})",
       "text.format"},
      {R"({"input": "x", "text": 1})", "text"},
      {R"({"input": "x", "include": ["everything"]})", "include[0]"},
      {R"({"input": "x", "truncation": "some"})", "truncation"},
      {R"({"input": "x", "store": "yes"})", "store"},
      {R"({"input": "x", "instructions": ["x"]})", "instructions"},
      {R"({"input": "x", "metadata": {"a": 1}})", "metadata"},
      {R"({"input": "x", "inputs": "y"})", "inputs"},
      {R"({"input": "x", "max_tokens": 5})", "max_tokens"},
  };
  ResponseStore store(0, 0);
  for (const auto& [body, field] : kCases) {
    const auto read = [&, text = body] { return read_responses(text, {}, store, {}); };
    EXPECT_EQ(refused(read), field) << body;
  }
}

TEST(ReadResponses, WhatHasNoEffectIsNamedInIgnored) {
  ResponseStore store(0, 0);
  const ResponsesRequest request = read_responses(
      R"({"input": "x", "store": true, "user": "u", "max_tool_calls": 3, "stream": true,
          "include": ["reasoning.encrypted_content"], "reasoning": {"summary": "auto"},
          "stream_options": {"include_obfuscation": true}, "service_tier": "auto"})",
      {}, store, {});
  for (const char* name : {"store", "user", "max_tool_calls", "include", "reasoning.summary",
                           "stream_options.include_obfuscation", "service_tier"}) {
    const auto& ignored = request.generation.ignored;
    EXPECT_EQ(std::ranges::count(ignored, name), 1) << name;
  }
  EXPECT_FALSE(request.is_stored);
  EXPECT_TRUE(request.generation.stream);
}

TEST(ReadMessages, BlocksBecomeMessages) {
  const Tree all = messages_conversation(R"({"max_tokens": 5, "system": [
      {"type": "text", "text": "S", "cache_control": {"type": "ephemeral"}}], "messages": [
    {"role": "user", "content": "U"}, {"role": "user", "content": [{"type": "text", "text": "V"}]},
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "R", "signature": "s"},
      {"type": "text", "text": "A"}, {"type": "tool_use", "id": "t1", "name": "f", "input": {}},
      {"type": "tool_use", "id": "t2", "name": "g", "input": {"x": 1}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "one"},
      {"type": "tool_result", "tool_use_id": "t2", "content": [{"type": "text", "text": "two"}]},
      {"type": "text", "text": "W"}]},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "t3", "name": "f", "input": {}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t3"}]}]})");
  ASSERT_EQ(all.size(), 8u) << all.dump();
  EXPECT_EQ(all[0], Tree::parse(R"({"role": "system", "content": "S"})"));
  EXPECT_EQ(all[1].at("content").size(), 2u) << "neighbours of one role are one message";
  EXPECT_EQ(all[2].at("reasoning_content"), "R");
  EXPECT_EQ(all[2].at("tool_calls")[1].at("function").at("arguments"), Tree::parse(R"({"x": 1})"));
  EXPECT_EQ(all[3], Tree::parse(R"({"role": "tool", "tool_call_id": "t1", "content": "one"})"));
  EXPECT_EQ(all[4].at("content"), "two");
  EXPECT_EQ(all[5], Tree::parse(R"({"role": "user", "content": "W"})"));
  EXPECT_EQ(all[7], Tree::parse(R"({"role": "tool", "tool_call_id": "t3", "content": ""})"));
}

TEST(ReadMessages, ALastMessageOfTheAssistantIsGoneOnWith) {
  const MessagesRequest request = read_messages_request(
      R"({"max_tokens": 5, "messages": [{"role": "user", "content": "U"},
                                        {"role": "assistant", "content": "I th"}]})",
      {});
  EXPECT_TRUE(request.generation.prompts.front().continue_final_message);
  EXPECT_FALSE(request.generation.prompts.front().add_generation_prompt);
}

TEST(ReadMessages, WhatIsWrongIsNamed) {
  const std::pair<const char*, const char*> kCases[] = {
      {R"({"max_tokens": 5})", "messages"},
      {R"({"max_tokens": 5, "messages": []})", "messages"},
      {R"({"messages": [{"role": "user", "content": "x"}]})", "max_tokens"},
      {R"({"max_tokens": 0, "messages": [{"role": "user", "content": "x"}]})", "max_tokens"},
      {R"({"max_tokens": 5, "messages": [{"role": "tool", "content": "x"}]})", "messages[0]"},
      {R"({"max_tokens": 5, "messages": [{"role": "user", "content": [{"type": "image"}]}]})",
       "messages[0].content[0]"},
      {R"({"max_tokens": 5, "messages": [{"role": "assistant", "content": [
            {"type": "tool_use", "id": "t", "name": "f", "input": {}}]}]})",
       "messages"},
      {R"({"max_tokens": 5, "messages": [{"role": "user", "content": "x"}], "stop_sequences": [1]})",
       "stop_sequences[0]"},
      {R"({"max_tokens": 5, "messages": [{"role": "user", "content": "x"}],
           "tools": [{"type": "bash_20250124", "name": "bash"}]})",
       "tools[0]"},
      {R"({"max_tokens": 5, "messages": [{"role": "user", "content": "x"}],
           "tool_choice": {"type": "any"}})",
       "tool_choice"},
      {R"({"max_tokens": 5, "messages": [{"role": "user", "content": "x"}],
           "thinking": {"type": "enabled"}})",
       "thinking"},
      {R"({"max_tokens": 5, "messages": [{"role": "user", "content": "x"}],
           "mcp_servers": [{"url": "x"}]})",
       "mcp_servers"},
      {R"({"max_tokens": 5, "messages": [{"role": "user", "content": "x"}], "n": 2})", "n"},
  };
  for (const auto& [body, field] : kCases) {
    const auto read = [text = body] { return read_messages_request(text, {}); };
    EXPECT_EQ(refused(read), field) << body;
  }
  const auto count = [] {
    return read_count_request(
        R"({"messages": [{"role": "user", "content": "x"}], "max_tokens": 5})", {});
  };
  EXPECT_EQ(refused(count), "max_tokens");
}

}  // namespace
}  // namespace heddle::serve
