#include "api/openai_request.h"

#include <algorithm>
#include <array>

#include "heddle/core/error.h"

#include "api/api_error.h"
#include "api/bounds.h"
#include "api/chat_fields.h"
#include "api/each_adapter.h"
#include "api/fields.h"
#include "request_json/chat_fields.h"
#include "request_json/row_reader.h"

namespace heddle::serve {
namespace {

using app::RowReader;

constexpr const char* kOpenAiWhere = "request";
constexpr auto kChat = std::to_array<std::string_view>(
    {"messages", "each_adapter", "max_completion_tokens", "top_logprobs", "add_generation_prompt",
     "continue_final_message", "chat_template", "chat_template_kwargs", "documents", "tools",
     "tool_choice", "parallel_tool_calls", "parse_tool_calls", "reasoning_effort",
     "reasoning_format", "include_reasoning", "separate_reasoning", "stream_reasoning",
     "thinking_token_budget"});
constexpr auto kCompletion = std::to_array<std::string_view>({"prompt", "best_of"});

void read_messages(const json& body, json messages, const app::ServeOptions& options,
                   Generation& generation, Request& request) {
  if (messages.is_null()) throw bad_request("field messages is missing", "messages");
  if (messages.is_array()) {
    check_count(messages.get_array().size(), options.limits.messages, "messages", "--max-messages");
  }
  read_conversation(body, std::move(messages), options.ignore_unknown_fields, generation, request);
}

/// What the response has of the answer's tokens.
void read_chat_logprobs(const RowReader& row, int64_t most, Generation& generation,
                        Request& request) {
  generation.logprobs = row.flag("logprobs", false);
  const int64_t top = row.integer("top_logprobs", 0, 0, most);
  HEDDLE_CHECK(top == 0 || generation.logprobs, "top_logprobs needs logprobs to be true");
  generation.top_logprobs = top;
  request.top_logprobs = static_cast<int32_t>(
      std::max<int64_t>(top, std::max<int64_t>(generation.prompt_logprobs, 0)));
}

void set_tells(const Generation& generation, Request& request) {
  request.tell_tokens =
      generation.logprobs || generation.return_token_ids || generation.prompt_logprobs >= 0;
}

/// What clients send that cannot leave the field out.
bool is_empty_list(const json& value) { return value.is_array() && files::size_of(value) == 0; }

/// A prompt for each entry: `request` with the entry's conversation, or else that of the body.
void read_each(json each, const json& body, const json& messages, const app::ServeOptions& options,
               Generation& generation, Request request) {
  set_tells(generation, request);
  std::vector<EachEntry> entries = read_each_adapter(std::move(each), body);
  const bool has_messages = !messages.is_null() && !is_empty_list(messages);
  if (has_messages && std::ranges::none_of(entries, [](const EachEntry& entry) {
        return entry.messages.is_null();
      })) {
    throw bad_request("messages: each entry of each_adapter has its own; leave the field out",
                      "messages");
  }
  for (EachEntry& entry : entries) {
    json own = entry.messages.is_null() ? messages : std::move(entry.messages);
    Request& prompt = generation.prompts.emplace_back(request);
    read_messages(body, std::move(own), options, generation, prompt);
    generation.each.push_back(std::move(entry.adapter));
  }
  check_copies("allowed_token_ids", request.allowed_token_ids.size(), generation.prompts.size());
}

std::string last_text(const Request& request) {
  if (request.messages.empty()) return {};
  const Message& last = request.messages.back();
  return last.role == "assistant" ? last.content : std::string();
}

}  // namespace

void read_conversation(const json& body, json messages, bool ignores_unknown,
                       Generation& generation, Request& request) {
  const RowReader row(body, kOpenAiWhere);
  app::MessageFields fields{.ignores_unknown = ignores_unknown};
  app::read_messages(row, std::move(messages), request, &fields);
  for (const std::string& name : fields.ignored) add_ignored(generation.ignored, name);
  if (row.flag("continue_final_message", false)) request.continue_final_message = true;
  app::read_chat_fields(row, request);
}

std::vector<Request> prompts_of(const json& prompt, const char* field, const Request& request,
                                int64_t most) {
  std::vector<Request> prompts;
  const auto add = [&]() -> Request& {
    prompts.push_back(request);
    return prompts.back();
  };
  if (prompt.is_string()) {
    add().text = files::text_of(prompt);
    return prompts;
  }
  if (!prompt.is_array() || prompt.get_array().empty()) {
    throw bad_request(
        std::string(field) +
            " is missing or of the wrong type; expected a string, a list of token ids, or a list "
            "of either",
        field);
  }
  const files::JsonArray& list = prompt.get_array();
  if (list.front().is_number()) {
    add().token_ids = app::token_ids_of(prompt, field);
    return prompts;
  }
  check_count(list.size(), most, field, "--max-prompts");
  check_copies("allowed_token_ids", request.allowed_token_ids.size(), list.size());
  for (const json& one : list) {
    if (one.is_string()) {
      add().text = files::text_of(one);
    } else {
      HEDDLE_CHECK(one.is_array(), field, " holds ", files::json_type(one),
                   ", expected texts or lists of token ids");
      add().token_ids = app::token_ids_of(one, field);
    }
  }
  return prompts;
}

Generation read_chat(const std::string& text, const app::ServeOptions& options) {
  return read_chat(parse_body(text), options);
}

Generation read_chat(files::JsonTree tree, const app::ServeOptions& options) {
  json& body = *tree;
  Generation generation;
  check_fields(body, common_fields(), kChat, options.ignore_unknown_fields, generation.ignored);
  json each = take(body, "each_adapter");
  if (!each.is_null()) check_copies(body, files::size_of(each));
  json messages = take(body, "messages");
  if (const json source = take(body, "chat_template"); !source.is_null()) {
    if (!options.allow_request_templates) {
      throw bad_request(
          "chat_template: templates of requests are not allowed; start the server with "
          "--allow-request-templates",
          "chat_template");
    }
    HEDDLE_CHECK(source.is_string(), "chat_template is ", files::json_type(source),
                 ", expected a text");
    generation.chat_template = files::text_of(source);
  }
  Request request;
  request.max_tokens = options.limits.default_max_tokens.value_or(
      options.generation.max_tokens.value_or(app::kDefaultMaxTokens));
  if (json longest = take(body, "max_completion_tokens"); !longest.is_null()) {
    body.as_object()["max_tokens"] = std::move(longest);
  }
  json top = take(body, "top_logprobs");
  read_common(body, options, generation, request);
  if (!top.is_null()) body.as_object()["top_logprobs"] = std::move(top);
  read_chat_logprobs(RowReader(body, kOpenAiWhere), options.limits.top_logprobs, generation,
                     request);
  read_tools(body, options, generation);
  read_reasoning(body, generation, request);
  if (!each.is_null()) {
    read_each(std::move(each), body, messages, options, generation, request);
    return generation;
  }
  read_messages(body, std::move(messages), options, generation, request);
  HEDDLE_CHECK(
      !generation.echo || request.truncate_prompt_tokens == 0,
      "echo and truncate_prompt_tokens are both given; a conversation takes only one of them");
  if (generation.echo) generation.echoed = last_text(request);
  set_tells(generation, request);
  generation.prompts.push_back(std::move(request));
  return generation;
}

Generation read_completion(const std::string& text, const app::ServeOptions& options) {
  constexpr int64_t kDefaultTokens = 16;  // as OpenAI has it
  files::JsonTree tree = parse_body(text);
  json& body = *tree;
  Generation generation;
  check_fields(body, common_fields(), kCompletion, options.ignore_unknown_fields,
               generation.ignored);
  const json prompt = take(body, "prompt");
  Request request;
  request.max_tokens = kDefaultTokens;
  read_common(body, options, generation, request);
  const RowReader row(body, kOpenAiWhere);
  generation.best_of =
      row.integer("best_of", generation.n, generation.n, std::max<int64_t>(options.limits.n, 1));
  HEDDLE_CHECK(
      generation.best_of == generation.n || !generation.stream,
      "best_of must not be larger than n in a stream: the best answers are known at the end");
  const int64_t top = row.integer("logprobs", -1, 0, options.limits.top_logprobs);
  generation.logprobs = row.find("logprobs") != nullptr;
  generation.top_logprobs = std::max<int64_t>(top, 0);
  request.top_logprobs =
      static_cast<int32_t>(std::max<int64_t>({0, top, generation.prompt_logprobs}));
  if (generation.echo && generation.logprobs) request.prompt_logprobs = true;
  set_tells(generation, request);
  if (generation.echo) request.tell_tokens = true;
  generation.prompts = prompts_of(prompt, "prompt", request, options.limits.prompts);
  return generation;
}

}  // namespace heddle::serve
