#include "api/tokenize.h"

#include <array>
#include <span>
#include <string_view>
#include <utility>

#include "heddle/core/error.h"

#include "api/fields.h"
#include "api/lorax.h"
#include "api/openai_request.h"

namespace heddle::serve {
namespace {

using app::RowReader;

constexpr const char* kTokenizeWhere = "request";
constexpr auto kWhichModel = std::to_array<std::string_view>(
    {"model", "adapter_id", "adapter_source", "api_token", "lora", "merge"});
constexpr auto kOfPrompt =
    std::to_array<std::string_view>({"prompt", "add_special_tokens", "return_token_strs"});
constexpr auto kOfMessages = std::to_array<std::string_view>(
    {"messages", "add_special_tokens", "return_token_strs", "add_generation_prompt",
     "continue_final_message", "chat_template_kwargs", "tools", "documents"});
constexpr auto kOfInputs =
    std::to_array<std::string_view>({"inputs", "parameters", "add_special_tokens"});

TokenizeCall read_inputs(json& body, const app::ServeOptions& options) {
  TokenizeCall call{.is_lorax = true};
  Generation& generation = call.generation;
  check_fields(body, kOfInputs, {}, options.ignore_unknown_fields, generation.ignored);
  (void)take_parameters(body, {}, options, generation);
  const RowReader row(body, kTokenizeWhere);
  Request& request = generation.prompts.emplace_back();
  request.text = row.required_text("inputs");
  request.add_special_tokens = row.flag("add_special_tokens", true);
  return call;
}

}  // namespace

TokenizeCall read_tokenize(const std::string& text, const app::ServeOptions& options) {
  files::JsonTree tree = parse_body(text);
  json& body = *tree;
  const auto is_given = [&body](const char* field) {
    return files::find_given(body, field) != nullptr;
  };
  if (is_given("inputs")) return read_inputs(body, options);
  const bool is_chat = is_given("messages");
  HEDDLE_CHECK(is_given("prompt") != is_chat,
               "expected either prompt or messages; the request has ",
               is_chat ? "both" : "neither");
  TokenizeCall call;
  Generation& generation = call.generation;
  const std::span<const std::string_view> fields =
      is_chat ? std::span(kOfMessages) : std::span<const std::string_view>(kOfPrompt);
  check_fields(body, kWhichModel, fields, options.ignore_unknown_fields, generation.ignored);
  json messages = take(body, "messages");
  const RowReader row(body, kTokenizeWhere);
  read_model(row, generation);
  call.returns_texts = row.flag("return_token_strs", false);
  Request& request = generation.prompts.emplace_back();
  if (row.find("add_special_tokens") != nullptr) {
    request.add_special_tokens = row.flag("add_special_tokens", true);
  }
  if (is_chat) {
    read_conversation(body, std::move(messages), options.ignore_unknown_fields, generation,
                      request);
  } else {
    request.text = row.required_text("prompt");
  }
  return call;
}

Generation read_detokenize(const std::string& text, const app::ServeOptions& options) {
  constexpr std::string_view kTokens[] = {"tokens"};
  files::JsonTree tree = parse_body(text);
  json& body = *tree;
  Generation generation;
  check_fields(body, kWhichModel, kTokens, options.ignore_unknown_fields, generation.ignored);
  const json* const tokens = files::find_member(body, "tokens");
  HEDDLE_CHECK(tokens != nullptr && tokens->is_array(),
               "tokens is missing or not a list of token ids");
  read_model(RowReader(body, kTokenizeWhere), generation);
  generation.prompts.emplace_back().token_ids = app::token_ids_of(*tokens, "tokens");
  return generation;
}

}  // namespace heddle::serve
