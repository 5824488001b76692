#include "responses/request.h"

#include <algorithm>
#include <array>
#include <optional>

#include "api/api_error.h"
#include "api/bounds.h"
#include "api/fields.h"
#include "api/translation.h"
#include "files/json_text.h"
#include "request_json/shown.h"
#include "responses/items.h"

namespace heddle::serve {
namespace {

using namespace neutral;

constexpr auto kResponses = std::to_array<std::string_view>({"model",
                                                             "input",
                                                             "instructions",
                                                             "max_output_tokens",
                                                             "temperature",
                                                             "top_p",
                                                             "stream",
                                                             "stream_options",
                                                             "tools",
                                                             "tool_choice",
                                                             "parallel_tool_calls",
                                                             "text",
                                                             "reasoning",
                                                             "top_logprobs",
                                                             "include",
                                                             "truncation",
                                                             "store",
                                                             "previous_response_id",
                                                             "metadata",
                                                             "stop"});

constexpr PassiveField kPassive[] = {
    {"access_programs", kAnything, {}},
    {"background", kFalse, "answers come with their requests; only false is accepted"},
    {"background_options", kEmpty, "answers come with their requests; leave the field out"},
    {"context_management", kEmpty, "conversations are not compacted; leave the field out"},
    {"conversation", 0,
     "there are no stored conversations; send input, or previous_response_id where the server "
     "stores responses"},
    {"image", kAnything, {}},
    {"max_tool_calls", kAnything, {}},
    {"prompt", 0, "there are no stored prompts; send instructions and input"},
};

constexpr std::pair<std::string_view, std::string_view> kNames[] = {
    {"response_format.json_schema", "text.format"},
    {"response_format", "text.format"},
    {".function", ""},
    {"reasoning_effort", "reasoning.effort"},
    {"verbosity", "text.verbosity"},
};

/// Fields that are the same in a chat completion.
constexpr std::string_view kSame[] = {"model", "temperature", "top_p", "stream", "stop"};

constexpr std::string_view kLogprobs = "message.output_text.logprobs";
constexpr std::string_view kIncludes[] = {kLogprobs,
                                          "reasoning.encrypted_content",
                                          "file_search_call.results",
                                          "web_search_call.results",
                                          "web_search_call.action.sources",
                                          "message.input_image.image_url",
                                          "computer_call_output.output.image_url",
                                          "code_interpreter_call.outputs"};

json value_or(const json& body, std::string_view name, json otherwise) {
  const json* const value = files::find_given(body, name);
  return value == nullptr ? std::move(otherwise) : *value;
}

const json* object_of(const json& body, const char* name) {
  const json* const value = files::find_given(body, name);
  if (value != nullptr) check_is_object(*value, name);
  return value;
}

class Reader {
 public:
  Reader(const app::ServeOptions& options, ResponseStore& store, const std::string& owner)
      : translation_(options), store_(store), owner_(owner) {}

  ResponsesRequest read(const std::string& text) {
    files::JsonTree tree = parse_body(text);
    json& body = *tree;
    translation_.take_passive(body, kPassive);
    translation_.check_body(body, kResponses);
    translation_.take_further(body);
    for (const std::string_view name : kSame) {
      if (const json* const value = files::find_given(body, name)) chat()[name] = *value;
    }
    read_conversation(body);
    read_length(body);
    read_tools(body);
    read_text(body);
    read_reasoning(body);
    read_logprobs(body);
    read_store(body);
    read_metadata(body);
    read_stream_options(body);
    request_.generation = translation_.read(kNames);
    echo_sampling(body);
    return std::move(request_);
  }

 private:
  JsonObject& chat() { return translation_.chat(); }
  JsonObject& echoed() { return request_.echoed; }

  void read_conversation(const json& body) {
    JsonArray messages = previous_messages(body);
    if (files::find_given(body, "input") == nullptr)
      throw bad_request("field input is missing", "input");
    add_input(*files::find_given(body, "input"), translation_, messages);
    check_count(messages.size(), translation_.options().limits.messages, "input", "--max-messages");
    conversation_ = messages;
    const json* const instructions = files::find_given(body, "instructions");
    echoed()["instructions"] = instructions == nullptr ? json() : *instructions;
    if (instructions != nullptr) {
      const json system =
          JsonObject{{"role", "system"}, {"content", text_in(body, "instructions", kBodyName)}};
      messages.insert(messages.begin(), system);
    }
    chat()["messages"] = std::move(messages);
  }

  JsonArray previous_messages(const json& body) {
    constexpr const char* kField = "previous_response_id";
    constexpr files::JsonLimits kLimits{.depth = 72};  // of a body, and what lies around it here
    const json* const previous = files::find_given(body, kField);
    echoed()[kField] = previous == nullptr ? json() : *previous;
    if (previous == nullptr) return {};
    const std::string id(text_in(body, kField, kBodyName));
    if (!store_.is_on()) {
      throw bad_request(
          "previous_response_id: the server stores no responses; start it with --response-store, "
          "or send the whole conversation in input",
          kField);
    }
    const auto stored = store_.find(id, owner_);
    if (stored == nullptr) {
      throw bad_request("previous_response_id: there is no response " + app::quote(id), kField);
    }
    const files::JsonTree tree = files::parse_json(stored->messages, kField, kLimits);
    JsonArray messages;
    messages = tree->get_array();  // in memory of its own
    return messages;
  }

  void read_length(const json& body) {
    const json* const most = files::find_given(body, "max_output_tokens");
    echoed()["max_output_tokens"] = most == nullptr ? json() : *most;
    if (most != nullptr) {
      chat()["max_completion_tokens"] = count_in(body, "max_output_tokens", kBodyName);
    }
    constexpr std::string_view kWords[] = {"disabled", "auto"};
    const std::string_view word = given_word_in(body, "truncation", kBodyName, kWords);
    echoed()["truncation"] = word.empty() ? kWords[0] : word;
    if (word == "auto") chat()["truncate_prompt_tokens"] = -1;
  }

  void read_tools(const json& body) {
    JsonArray& told = echoed()["tools"].emplace_array();
    JsonArray tools;
    if (files::find_given(body, "tools") != nullptr) {
      const JsonArray& list = list_in(body, "tools", kBodyName);
      for (size_t i = 0; i < list.size(); ++i) {
        tools.push_back(tool_of(list[i], place_in("tools", i), told));
      }
    }
    read_choice(body, tools);
    const json* const parallel = files::find_given(body, "parallel_tool_calls");
    echoed()["parallel_tool_calls"] =
        parallel == nullptr || flag_in(body, "parallel_tool_calls", kBodyName);
    if (tools.empty()) return;
    if (parallel != nullptr) chat()["parallel_tool_calls"] = *parallel;
    chat()["tools"] = std::move(tools);
  }

  /// {"type": "function", "name", "description", "parameters", "strict"}
  json tool_of(const json& tool, const std::string& where, JsonArray& told) {
    constexpr std::string_view kKnown[] = {"type", "name", "description", "parameters", "strict"};
    constexpr std::string_view kIgnored[] = {"allowed_callers", "defer_loading", "async",
                                             "output_schema"};
    check_is_object(tool, where);
    const std::string_view type = text_in(tool, "type", where);
    if (type != "function") {
      refuse_at(where, "tools of type " + app::quote(type) + " are not supported, functions are");
    }
    translation_.check_members(tool, where, "tools", {.known = kKnown, .ignored = kIgnored});
    JsonObject function{{"name", text_in(tool, "name", where)}};
    for (const std::string_view name : {"description", "parameters", "strict"}) {
      if (const json* const value = files::find_given(tool, name)) function[name] = *value;
    }
    told.push_back(JsonObject{{"type", "function"},
                              {"name", function.at("name")},
                              {"description", value_or(tool, "description", {})},
                              {"parameters", value_or(tool, "parameters", {})},
                              {"strict", value_or(tool, "strict", {})}});
    return JsonObject{{"type", "function"}, {"function", std::move(function)}};
  }

  void read_choice(const json& body, JsonArray& tools) {
    constexpr std::string_view kWords[] = {"none", "auto", "required"};
    const json* const choice = files::find_given(body, "tool_choice");
    echoed()["tool_choice"] = choice == nullptr ? json("auto") : *choice;
    if (choice == nullptr) return;
    if (choice->is_string()) {
      const std::string_view word = word_in(body, "tool_choice", kBodyName, kWords);
      if (tools.empty() && word == "required") {
        throw bad_request("tool_choice is \"required\", and there are no tools", "tool_choice");
      }
      if (!tools.empty()) chat()["tool_choice"] = word;
      return;
    }
    check_is_object(*choice, "tool_choice");
    const std::string_view type = text_in(*choice, "type", "tool_choice");
    if (type == "function") {
      constexpr std::string_view kKnown[] = {"type", "name"};
      translation_.check_members(*choice, "tool_choice", "tool_choice", {.known = kKnown});
      chat()["tool_choice"] = JsonObject{
          {"type", "function"}, {"function", {{"name", text_in(*choice, "name", "tool_choice")}}}};
    } else if (type == "allowed_tools") {
      keep_allowed(*choice, tools);
    } else {
      refuse_at("tool_choice", "choices of type " + app::quote(type) +
                                   " are not supported; expected \"function\" or "
                                   "\"allowed_tools\"");
    }
  }

  /// {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "now"}]}: the
  /// model sees no others.
  void keep_allowed(const json& choice, JsonArray& tools) {
    constexpr std::string_view kKnown[] = {"type", "mode", "tools"};
    constexpr std::string_view kTool[] = {"type", "name"};
    constexpr std::string_view kModes[] = {"auto", "required"};
    const std::string where = "tool_choice";
    translation_.check_members(choice, where, where, {.known = kKnown});
    chat()["tool_choice"] = word_in(choice, "mode", where, kModes);
    const JsonArray& list = list_in(choice, "tools", where);
    JsonArray kept;
    for (size_t i = 0; i < list.size(); ++i) {
      const std::string place = place_in(where + ".tools", i);
      check_is_object(list[i], place);
      translation_.check_members(list[i], place, "tool_choice.tools", {.known = kTool});
      const std::string_view name = text_in(list[i], "name", place);
      const auto tool = std::ranges::find_if(tools, [name](const json& each) {
        return files::is_text(each.at("function").at("name"), name);
      });
      if (tool == tools.end()) refuse_at(place, "there is no tool " + app::quote(name));
      kept.push_back(*tool);
    }
    tools = std::move(kept);
    if (tools.empty()) chat().erase("tool_choice");
  }

  void read_text(const json& body) {
    constexpr std::string_view kKnown[] = {"format", "verbosity"};
    json told = JsonObject{{"format", JsonObject{{"type", "text"}}}};
    if (const json* const text = object_of(body, "text")) {
      translation_.check_members(*text, "text", "text", {.known = kKnown});
      if (const json* const format = files::find_given(*text, "format")) {
        chat()["response_format"] = format_of(*format);
        told.as_object()["format"] = *format;
      }
      if (const json* const verbosity = files::find_given(*text, "verbosity")) {
        chat()["verbosity"] = *verbosity;
        told.as_object()["verbosity"] = *verbosity;
      }
    }
    echoed()["text"] = std::move(told);
  }

  /// In the response format of a chat completion a schema lies one level deeper.
  json format_of(const json& format) {
    constexpr std::string_view kPlain[] = {"type"};
    constexpr std::string_view kSchema[] = {"type", "name", "description", "schema", "strict"};
    constexpr std::string_view kTypes[] = {"text", "json_object", "json_schema"};
    const std::string where = "text.format";
    check_is_object(format, where);
    const std::string_view type = word_in(format, "type", where, kTypes);
    const bool has_schema = type == "json_schema";
    translation_.check_members(
        format, where, where,
        {.known = has_schema ? std::span<const std::string_view>(kSchema) : kPlain});
    if (!has_schema) return JsonObject{{"type", type}};
    JsonObject schema;
    for (const std::string_view name : {"name", "description", "schema", "strict"}) {
      if (const json* const value = files::find_given(format, name)) schema[name] = *value;
    }
    if (!schema.contains("schema")) refuse_at(where, "field schema is missing");
    return JsonObject{{"type", type}, {"json_schema", std::move(schema)}};
  }

  void read_reasoning(const json& body) {
    constexpr std::string_view kKnown[] = {"effort"};
    constexpr std::string_view kIgnored[] = {"summary", "generate_summary", "context", "mode"};
    json told = JsonObject{{"effort", nullptr}, {"summary", nullptr}};
    if (const json* const reasoning = object_of(body, "reasoning")) {
      translation_.check_members(*reasoning, "reasoning", "reasoning",
                                 {.known = kKnown, .ignored = kIgnored});
      if (const json* const effort = files::find_given(*reasoning, "effort")) {
        chat()["reasoning_effort"] = text_in(*reasoning, "effort", "reasoning");
        told.as_object()["effort"] = *effort;
      }
    }
    echoed()["reasoning"] = std::move(told);
  }

  void read_logprobs(const json& body) {
    bool has_logprobs = false;
    if (files::find_given(body, "include") != nullptr) {
      const JsonArray& list = list_in(body, "include", kBodyName);
      for (size_t i = 0; i < list.size(); ++i) {
        const std::string where = place_in("include", i);
        const bool is_known = std::ranges::any_of(
            kIncludes, [&](std::string_view each) { return files::is_text(list[i], each); });
        if (!is_known) refuse_at(where, "there is nothing of that name to include");
        const std::string_view word = files::text_of(list[i]);
        if (word == kLogprobs) has_logprobs = true;
        if (word == "reasoning.encrypted_content") translation_.ignore("include");
      }
    }
    const json* const top = files::find_given(body, "top_logprobs");
    echoed()["top_logprobs"] = top == nullptr ? json(0) : *top;
    if (top != nullptr) chat()["top_logprobs"] = *top;
    if (has_logprobs || (top != nullptr && !files::is_number(*top, 0))) chat()["logprobs"] = true;
  }

  /// OpenAI stores what does not say otherwise: here the server's option says whether that is so.
  void read_store(const json& body) {
    const bool is_wanted =
        files::find_given(body, "store") == nullptr || flag_in(body, "store", kBodyName);
    request_.is_stored = is_wanted && store_.is_on();
    if (files::find_given(body, "store") != nullptr && is_wanted && !store_.is_on()) {
      translation_.ignore("store");
    }
    echoed()["store"] = request_.is_stored;
    if (request_.is_stored) request_.messages = files::json_text(json(std::move(conversation_)));
  }

  void read_metadata(const json& body) {
    json& told = echoed()["metadata"];
    told.emplace_object();
    const json* const metadata = object_of(body, "metadata");
    if (metadata == nullptr) return;
    for (const auto& member : metadata->get_object()) {
      if (!member.value().is_string()) {
        throw bad_request("metadata: " + app::shown(member.key()) + " is " +
                              files::json_kind(member.value()) + ", expected a string",
                          "metadata");
      }
    }
    told = *metadata;
  }

  void read_stream_options(const json& body) {
    constexpr std::string_view kKnown[] = {"include_obfuscation"};
    const json* const options = object_of(body, "stream_options");
    if (options == nullptr) return;
    translation_.check_members(*options, "stream_options", "stream_options", {.known = kKnown});
    if (flag_in(*options, "include_obfuscation", "stream_options")) {
      translation_.ignore("stream_options.include_obfuscation");
    }
  }

  /// As the request has it, else as it is.
  void echo_sampling(const json& body) {
    const SamplingOptions& sampling = request_.generation.prompts.front().sampling;
    echoed()["temperature"] = value_or(body, "temperature", json(double{sampling.temperature}));
    echoed()["top_p"] = value_or(body, "top_p", json(double{sampling.top_p}));
  }

  Translation translation_;
  ResponseStore& store_;
  const std::string& owner_;
  ResponsesRequest request_;
  JsonArray conversation_;
};

}  // namespace

FieldNames responses_names() { return kNames; }

ResponsesRequest read_responses(const std::string& body, const app::ServeOptions& options,
                                ResponseStore& store, const std::string& owner) {
  return Reader(options, store, owner).read(body);
}

}  // namespace heddle::serve
