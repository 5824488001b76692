// What /v1/responses and /v1/messages make of answers with thoughts and calls.
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "api/answer_parts.h"
#include "api/api_error.h"
#include "messages/form.h"
#include "responses/form.h"

namespace heddle::serve {
namespace {

using Tree = nlohmann::ordered_json;

constexpr const char* kAnswer =
    "<think>So.</think>\n\nLooking.\n<tool_call>\n{\"name\": \"now\", \"arguments\": {\"zone\": "
    "\"UTC\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";

Generation with_parts(bool has_parts = true) {
  Generation generation;
  generation.prompts.emplace_back().max_tokens = 100;
  if (!has_parts) return generation;
  generation.style.tools = answers::ToolFormat::kHermes;
  generation.style.reasoning = {.begin = "<think>", .end = "</think>", .is_on = true};
  generation.parser = {.finds_calls = true, .finds_reasoning = true, .tools = {"now"}};
  return generation;
}

/// What a stream says, event by event; the name of each is also its type.
std::vector<Tree> events_of(const std::string& stream) {
  std::vector<Tree> events;
  size_t at = 0;
  while (at < stream.size()) {
    const size_t line = stream.find('\n', at), end = stream.find("\n\n", at);
    const std::string name = stream.substr(at + 7, line - at - 7);
    events.push_back(Tree::parse(stream.substr(line + 7, end - line - 7)));
    EXPECT_EQ(events.back().at("type"), name);
    at = end + 2;
  }
  return events;
}

Completion completion_of(const std::string& text, FinishReason reason) {
  Completion completion;
  completion.text = text;
  completion.token_ids = {1, 2, 3};
  completion.prompt_tokens = 7;
  completion.cached_tokens = 2;
  completion.finish_reason = reason;
  return completion;
}

/// The events of an answer that comes in pieces of so many bytes.
std::vector<Tree> streamed(AnswerForm& form, const std::string& text, size_t piece,
                           FinishReason reason = FinishReason::kStop) {
  std::string bytes;
  for (size_t at = 0; at < text.size(); at += piece) {
    bytes += form.added(0, {.text = text.substr(at, piece), .prompt_tokens = 7});
  }
  const Completion completion = completion_of(text, reason);
  bytes += form.added(0, {.completion = completion, .prompt_tokens = 7, .cached_tokens = 2});
  bytes += form.end({&completion, 1});
  return events_of(form.begin() + bytes);
}

Tree whole(AnswerForm& form, const std::string& text, FinishReason reason = FinishReason::kStop) {
  const Completion completion = completion_of(text, reason);
  return Tree::parse(form.whole({&completion, 1}));
}

std::vector<std::string> types_of(const std::vector<Tree>& events) {
  std::vector<std::string> types;
  for (const Tree& event : events) {
    if (types.empty() || types.back() != event.at("type")) types.push_back(event.at("type"));
  }
  return types;
}

std::unique_ptr<AnswerForm> response_form(bool has_parts = true, OnResponse on_end = {}) {
  ResponsesRequest request;
  request.generation = with_parts(has_parts);
  request.echoed["metadata"].emplace_object();
  return responses_form(std::move(request), "resp_1f", "model", std::move(on_end));
}

std::unique_ptr<AnswerForm> message_form(bool hides_thoughts = false) {
  return messages_form({.generation = with_parts(), .hides_thoughts = hides_thoughts}, "msg_1f",
                       "model");
}

TEST(AnswerParts, AnAnswerWithoutMarksIsOneText) {
  AnswerParts parts(with_parts(false));
  EXPECT_EQ(parts.push(" a").size(), 2u);
  EXPECT_EQ(parts.push("").size(), 0u);
  EXPECT_EQ(parts.push("<think>").size(), 1u);
  EXPECT_EQ(parts.finish().size(), 1u);
  ASSERT_EQ(parts.parts().size(), 1u);
  EXPECT_EQ(parts.parts()[0].text, " a<think>");
  AnswerParts none(with_parts(false));
  EXPECT_TRUE(none.finish().empty());
  EXPECT_TRUE(none.parts().empty());
}

TEST(AnswerParts, SpacesNextToThoughtsAndCallsAreNoPart) {
  AnswerParts parts(with_parts());
  (void)parts.push("<think>a</think>\n\n");
  (void)parts.push("<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n");
  (void)parts.finish();
  ASSERT_EQ(parts.parts().size(), 2u);
  EXPECT_EQ(parts.parts()[0].kind, PartKind::kThoughts);
  EXPECT_EQ(parts.parts()[1].kind, PartKind::kCall);
  EXPECT_EQ(parts.parts()[1].name, "now");
  EXPECT_TRUE(parts.has_calls());
  AnswerParts spaces(with_parts());
  (void)spaces.push("\n ");
  (void)spaces.finish();
  ASSERT_EQ(spaces.parts().size(), 1u) << "an answer of nothing else is one";
  EXPECT_EQ(spaces.parts()[0].text, "\n ");
}

class Texts : public TokenTexts {
 public:
  explicit Texts(std::vector<std::string> texts) : texts_(std::move(texts)) {}
  std::string_view bytes(int32_t id) const override { return texts_[static_cast<size_t>(id)]; }
  bool is_special(int32_t) const override { return false; }

 private:
  std::vector<std::string> texts_;
};

TEST(CountThoughts, UpToTheMarkThatEndsThem) {
  Completion completion;
  completion.token_ids = {0, 1, 2, 3, 4};
  completion.token_texts =
      std::make_shared<Texts>(std::vector<std::string>{"<thi", "nk>a", "</th", "ink>b", "c"});
  EXPECT_EQ(count_thoughts(with_parts(), completion), 4);
  completion.token_ids = {0, 1, 2};
  EXPECT_EQ(count_thoughts(with_parts(), completion), 3) << "cut off within them";
  completion.token_ids = {4, 0, 1, 3};
  EXPECT_EQ(count_thoughts(with_parts(), completion), 0) << "it begins with text";
  Generation has_begun = with_parts();
  has_begun.style.reasoning.has_begun = true;
  completion.token_ids = {4, 4, 2, 3, 4};
  EXPECT_EQ(count_thoughts(has_begun, completion), 4);
  EXPECT_EQ(count_thoughts(with_parts(false), completion), 0);
}

TEST(ResponsesForm, EventsOfThoughtsTextAndCallsAreInOrder) {
  for (size_t piece : {1u, 3u, 1000u}) {
    const auto events = streamed(*response_form(), kAnswer, piece);
    EXPECT_EQ(types_of(events), (std::vector<std::string>{"response.created",
                                                          "response.in_progress",
                                                          "response.output_item.added",
                                                          "response.content_part.added",
                                                          "response.reasoning_text.delta",
                                                          "response.reasoning_text.done",
                                                          "response.content_part.done",
                                                          "response.output_item.done",
                                                          "response.output_item.added",
                                                          "response.content_part.added",
                                                          "response.output_text.delta",
                                                          "response.output_text.done",
                                                          "response.content_part.done",
                                                          "response.output_item.done",
                                                          "response.output_item.added",
                                                          "response.function_call_arguments.delta",
                                                          "response.function_call_arguments.done",
                                                          "response.output_item.done",
                                                          "response.output_item.added",
                                                          "response.function_call_arguments.delta",
                                                          "response.function_call_arguments.done",
                                                          "response.output_item.done",
                                                          "response.completed"}));
    std::map<int, std::string> deltas, done;
    Tree items = Tree::array();
    for (size_t i = 0; i < events.size(); ++i) {
      const Tree& event = events[i];
      EXPECT_EQ(event.at("sequence_number"), i);
      if (event.contains("delta")) deltas[event.at("output_index")] += event.at("delta");
      if (event.contains("text")) done[event.at("output_index")] = event.at("text");
      if (event.contains("arguments")) done[event.at("output_index")] = event.at("arguments");
      if (event.at("type") == "response.output_item.done") items.push_back(event.at("item"));
    }
    EXPECT_EQ(deltas, done);
    EXPECT_EQ(deltas.size(), 4u);
    const Tree& response = events.back().at("response");
    EXPECT_EQ(response.at("output"), items);
    EXPECT_EQ(response.at("status"), "completed");
    EXPECT_EQ(response.at("usage").at("input_tokens"), 7);
    EXPECT_EQ(response.at("usage").at("input_tokens_details").at("cached_tokens"), 2);
    EXPECT_EQ(response.at("usage").at("total_tokens"), 10);
    EXPECT_EQ(Tree::parse(done.at(2)), Tree::parse(R"({"zone": "UTC"})"));
  }
}

TEST(ResponsesForm, AWholeAnswerHasTheItemsOfTheStream) {
  std::string stored, message;
  Tree told = whole(*response_form(true,
                                   [&](const std::string& response, const std::string& last) {
                                     stored = response;
                                     message = last;
                                   }),
                    kAnswer);
  EXPECT_EQ(Tree::parse(stored), told);
  Tree streamed_items = streamed(*response_form(), kAnswer, 5).back()["response"]["output"];
  for (Tree* items : {&told["output"], &streamed_items}) {
    for (Tree& item : *items) item.erase("call_id");  // drawn at random
  }
  EXPECT_EQ(told["output"], streamed_items);
  const Tree last = Tree::parse(message);
  EXPECT_EQ(last.at("role"), "assistant");
  EXPECT_EQ(last.at("reasoning_content"), "So.");
  EXPECT_EQ(last.at("tool_calls").size(), 2u);
}

TEST(ResponsesForm, AnAnswerThatIsCutOffOrEmptyOrFails) {
  const Tree cut = whole(*response_form(), "<think>So", FinishReason::kLength);
  EXPECT_EQ(cut.at("status"), "incomplete");
  EXPECT_EQ(cut.at("incomplete_details").at("reason"), "max_output_tokens");
  EXPECT_EQ(cut.at("output").at(0).at("status"), "incomplete");
  EXPECT_EQ(streamed(*response_form(), "<think>So", 2, FinishReason::kLength).back().at("type"),
            "response.incomplete");
  const Tree empty = whole(*response_form(false), "");
  EXPECT_EQ(empty.at("output").at(0).at("content").at(0).at("text"), "");
  const auto form = response_form();
  const std::string begin = form->added(0, {.text = "a"});
  const auto events = events_of(begin + form->failure({503, "ServiceUnavailableError", "gone"}));
  ASSERT_GE(events.size(), 2u);
  EXPECT_EQ(events[events.size() - 2].at("type"), "error");
  EXPECT_EQ(events[events.size() - 2].at("message"), "gone");
  EXPECT_EQ(events.back().at("type"), "response.failed");
  EXPECT_EQ(events.back().at("response").at("error").at("code"), "server_error");
}

TEST(MessagesForm, EventsOfThoughtsTextAndCallsAreInOrder) {
  for (size_t piece : {1u, 3u, 1000u}) {
    const auto events = streamed(*message_form(), kAnswer, piece);
    EXPECT_EQ(events.front().at("message").at("usage").at("input_tokens"), 7);
    std::string order;
    std::map<int, std::string> grown;
    for (const Tree& event : events) {
      const std::string type = event.at("type");
      if (type == "content_block_start") {
        order += "[" + event.at("content_block").at("type").get<std::string>();
      }
      if (type == "content_block_stop") order += "]";
      if (type != "content_block_delta") continue;
      const Tree& delta = event.at("delta");
      if (delta.at("type") == "signature_delta") order += " signed";
      for (const char* field : {"text", "thinking", "partial_json"}) {
        if (delta.contains(field)) grown[event.at("index")] += delta.at(field);
      }
    }
    EXPECT_EQ(order, "[thinking signed][text][tool_use][tool_use]");
    EXPECT_EQ(grown.at(0), "So.");
    EXPECT_EQ(Tree::parse(grown.at(2)).at("zone"), "UTC");
    const Tree& end = events[events.size() - 2];
    EXPECT_EQ(end.at("type"), "message_delta");
    EXPECT_EQ(end.at("delta").at("stop_reason"), "tool_use");
    EXPECT_EQ(end.at("usage").at("input_tokens"), 5) << "without those of the cache";
    EXPECT_EQ(events.back().at("type"), "message_stop");
  }
}

TEST(MessagesForm, AWholeAnswer) {
  const Tree told = whole(*message_form(), kAnswer);
  ASSERT_EQ(told.at("content").size(), 4u);
  EXPECT_EQ(told.at("content").at(0).at("thinking"), "So.");
  EXPECT_FALSE(told.at("content").at(0).at("signature").get<std::string>().empty());
  EXPECT_EQ(told.at("content").at(2).at("input"), Tree::parse(R"({"zone": "UTC"})"));
  EXPECT_EQ(told.at("content").at(2).at("id").get<std::string>().substr(0, 6), "toolu_");
  EXPECT_EQ(told.at("stop_reason"), "tool_use");
  const Tree hidden = whole(*message_form(true), kAnswer);
  EXPECT_EQ(hidden.at("content").at(0).at("thinking"), "");
  const Tree cut = whole(*message_form(), "ab", FinishReason::kLength);
  EXPECT_EQ(cut.at("stop_reason"), "model_context_window_exceeded") << "3 of 100 tokens";
  const auto events = events_of(message_form()->failure({503, "", "gone"}));
  EXPECT_EQ(events.at(0).at("error").at("type"), "overloaded_error");
}

TEST(ResponseStore, TheLastUsedStayAndOwnersAreKeptApart) {
  ResponseStore store(2, 1 << 20);
  for (const char* id : {"a", "b"}) store.put(id, {.owner = "x", .response = id, .messages = {}});
  EXPECT_EQ(store.find("a", "x")->response, "a");
  EXPECT_EQ(store.find("a", "y"), nullptr);
  EXPECT_FALSE(store.erase("a", "y"));
  store.put("c", {.owner = "x", .response = "c", .messages = {}});
  EXPECT_EQ(store.find("b", "x"), nullptr) << "not used for the longest time";
  EXPECT_NE(store.find("a", "x"), nullptr);
  EXPECT_TRUE(store.erase("a", "x"));
  EXPECT_FALSE(store.erase("a", "x"));
  ResponseStore small(100, 10'000);
  for (int i = 0; i < 100; ++i) {
    small.put(std::to_string(i),
              {.owner = "x", .response = std::string(4000, 'x'), .messages = {}});
  }
  EXPECT_EQ(small.find("97", "x"), nullptr) << "two have room";
  EXPECT_NE(small.find("98", "x"), nullptr);
  small.put("large", {.owner = "x", .response = std::string(20'000, 'x'), .messages = {}});
  EXPECT_EQ(small.find("large", "x"), nullptr);
  EXPECT_NE(small.find("99", "x"), nullptr) << "what has no room at all drops nothing";
  ResponseStore off(0, 1 << 20);
  off.put("a", {.owner = "x", .response = "a", .messages = {}});
  EXPECT_EQ(off.find("a", "x"), nullptr);
}

}  // namespace
}  // namespace heddle::serve
