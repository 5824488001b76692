#include "api/openai_request.h"

#include <algorithm>
#include <array>
#include <limits>

#include "heddle/core/error.h"

#include "api/api_error.h"
#include "api/fields.h"
#include "files/json_text.h"
#include "generate/chat_fields.h"
#include "generate/row_reader.h"

namespace heddle::serve {
namespace {

using app::RowReader;

constexpr const char* kWhere = "request";
constexpr auto kChat = std::to_array<std::string_view>(
    {"messages", "max_completion_tokens", "top_logprobs", "add_generation_prompt",
     "continue_final_message", "chat_template", "chat_template_kwargs", "documents"});
constexpr auto kCompletion = std::to_array<std::string_view>({"prompt", "best_of"});
constexpr auto kTokenize = std::to_array<std::string_view>(
    {"model", "adapter_id", "prompt", "messages", "add_special_tokens", "add_generation_prompt",
     "continue_final_message", "chat_template_kwargs", "return_token_strs"});

void read_conversation(json& body, const json& messages, Request& request) {
  const RowReader row(body, kWhere);
  app::read_messages(row, messages, request);
  const bool continues = row.flag("continue_final_message", false);
  app::read_chat_fields(row, request);
  if (!continues) return;
  HEDDLE_CHECK(files::find_member(body, "add_generation_prompt") == nullptr ||
                   !request.add_generation_prompt,
               "continue_final_message and add_generation_prompt are both true");
  request.add_generation_prompt = false;
  request.continue_final_message = true;
}

/// What of the answer's tokens is told.
void read_chat_logprobs(const RowReader& row, int64_t most, Generation& generation,
                        Request& request) {
  generation.logprobs = row.flag("logprobs", false);
  const int64_t top = row.integer("top_logprobs", 0, 0, most);
  HEDDLE_CHECK(top == 0 || generation.logprobs, "top_logprobs is given, and logprobs is not true");
  generation.top_logprobs = top;
  request.top_logprobs = static_cast<int32_t>(
      std::max<int64_t>(top, std::max<int64_t>(generation.prompt_logprobs, 0)));
}

void set_tells(const Generation& generation, Request& request) {
  request.tell_tokens =
      generation.logprobs || generation.return_token_ids || generation.prompt_logprobs >= 0;
}

int32_t token_of(const json& id) {
  const auto token = files::integer_in(id, 0, std::numeric_limits<int32_t>::max());
  HEDDLE_CHECK(token, "prompt holds ", files::json_text(id), ", expected token ids");
  return static_cast<int32_t>(*token);
}

std::vector<int32_t> tokens_of(const files::JsonArray& list) {
  std::vector<int32_t> ids;
  for (const json& id : list) ids.push_back(token_of(id));
  return ids;
}

/// "text", ["text", ...], [id, ...] or [[id, ...], ...]: a copy of `request` for each.
std::vector<Request> prompts_of(const json& prompt, const Request& request, int64_t most) {
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
    throw bad_request("prompt is missing, or no text, tokens or a list of these", "prompt");
  }
  const files::JsonArray& list = prompt.get_array();
  if (list.front().is_number()) {
    add().token_ids = tokens_of(list);
    return prompts;
  }
  if (std::ssize(list) > most) {
    throw bad_request("prompt has " + std::to_string(list.size()) + " prompts, at most " +
                          std::to_string(most) + " are allowed (--max-prompts)",
                      "prompt");
  }
  for (const json& one : list) {
    if (one.is_string()) {
      add().text = files::text_of(one);
    } else {
      HEDDLE_CHECK(one.is_array(), "prompt holds ", files::json_type(one),
                   ", expected texts or lists of token ids");
      add().token_ids = tokens_of(one.get_array());
    }
  }
  return prompts;
}

std::string last_text(const Request& request) {
  if (request.messages.empty()) return {};
  const Message& last = request.messages.back();
  return last.role == "assistant" ? last.content : std::string();
}

}  // namespace

Generation read_chat(const std::string& text, const app::ServeOptions& options) {
  files::JsonTree tree = parse_body(text);
  json& body = *tree;
  check_fields(body, common_fields(), kChat, options.ignore_unknown_fields);
  const json messages = take(body, "messages");
  if (messages.is_null()) throw bad_request("field messages is missing", "messages");
  const auto num_messages = static_cast<int64_t>(files::size_of(messages));
  if (messages.is_array() && num_messages > options.limits.messages) {
    throw bad_request("messages has " + std::to_string(num_messages) + " entries, at most " +
                          std::to_string(options.limits.messages) + " are allowed (--max-messages)",
                      "messages");
  }
  Generation generation;
  if (const json source = take(body, "chat_template"); !source.is_null()) {
    if (!options.allow_request_templates) {
      throw bad_request("chat_template: the server takes none (--allow-request-templates)",
                        "chat_template");
    }
    HEDDLE_CHECK(source.is_string(), "chat_template is ", files::json_type(source),
                 ", expected a text");
    generation.chat_template = files::text_of(source);
  }
  Request request;
  request.max_tokens = options.limits.default_max_tokens;
  if (json longest = take(body, "max_completion_tokens"); !longest.is_null()) {
    body.as_object()["max_tokens"] = std::move(longest);
  }
  json top = take(body, "top_logprobs");
  read_common(body, options, generation, request);
  if (!top.is_null()) body.as_object()["top_logprobs"] = std::move(top);
  read_chat_logprobs(RowReader(body, kWhere), options.limits.top_logprobs, generation, request);
  read_conversation(body, messages, request);
  if (generation.echo) generation.echoed = last_text(request);
  set_tells(generation, request);
  generation.prompts.push_back(std::move(request));
  return generation;
}

Generation read_completion(const std::string& text, const app::ServeOptions& options) {
  constexpr int64_t kDefaultTokens = 16;  // as OpenAI has it
  files::JsonTree tree = parse_body(text);
  json& body = *tree;
  check_fields(body, common_fields(), kCompletion, options.ignore_unknown_fields);
  const json prompt = take(body, "prompt");
  Generation generation;
  Request request;
  request.max_tokens = kDefaultTokens;
  read_common(body, options, generation, request);
  const RowReader row(body, kWhere);
  generation.best_of =
      row.integer("best_of", generation.n, generation.n, std::max<int64_t>(options.limits.n, 1));
  HEDDLE_CHECK(generation.best_of == generation.n || !generation.stream,
               "best_of is larger than n, and stream is true");
  const int64_t top = row.integer("logprobs", -1, 0, options.limits.top_logprobs);
  generation.logprobs = row.find("logprobs") != nullptr;
  generation.top_logprobs = std::max<int64_t>(top, 0);
  request.top_logprobs =
      static_cast<int32_t>(std::max<int64_t>({0, top, generation.prompt_logprobs}));
  if (generation.echo && generation.logprobs) request.prompt_logprobs = true;
  set_tells(generation, request);
  if (generation.echo) request.tell_tokens = true;
  generation.prompts = prompts_of(prompt, request, options.limits.prompts);
  return generation;
}

Generation read_tokenize(const std::string& text, const app::ServeOptions& options) {
  files::JsonTree tree = parse_body(text);
  json& body = *tree;
  check_fields(body, kTokenize, {}, options.ignore_unknown_fields);
  const json prompt = take(body, "prompt"), messages = take(body, "messages");
  Generation generation;
  Request request;
  const RowReader row(body, kWhere);
  if (const json* model = row.find("model")) generation.choice.model = row.text("model", *model);
  if (const json* id = row.find("adapter_id")) {
    generation.choice.adapter_id = row.text("adapter_id", *id);
  }
  generation.return_token_ids = row.flag("return_token_strs", false);
  if (row.find("add_special_tokens") != nullptr) {
    request.add_special_tokens = row.flag("add_special_tokens", true);
  }
  HEDDLE_CHECK(prompt.is_null() != messages.is_null(),
               "expected one of prompt and messages, there are ",
               prompt.is_null() ? "none" : "both");
  if (prompt.is_null()) {
    read_conversation(body, messages, request);
  } else {
    request.text = row.text("prompt", prompt);
  }
  generation.prompts.push_back(std::move(request));
  return generation;
}

}  // namespace heddle::serve
