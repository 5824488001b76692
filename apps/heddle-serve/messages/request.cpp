#include "messages/request.h"

#include <array>
#include <span>

#include "api/api_error.h"
#include "api/bounds.h"
#include "api/fields.h"
#include "api/translation.h"
#include "files/json_text.h"
#include "messages/blocks.h"
#include "request_json/shown.h"

namespace heddle::serve {
namespace {

using namespace neutral;

constexpr auto kCounted = std::to_array<std::string_view>(
    {"model", "messages", "system", "tools", "tool_choice", "thinking", "output_config"});
constexpr auto kMessages = std::to_array<std::string_view>(
    {"model", "messages", "system", "tools", "tool_choice", "thinking", "output_config",
     "max_tokens", "stop_sequences", "stream", "temperature", "top_p"});

constexpr PassiveField kHints[] = {
    {"betas", kAnything, {}},
    {"cache_control", kAnything, {}},
    {"container", kEmpty, "there are no containers; leave the field out"},
    {"context_management", kEmpty, "conversations are not edited; leave the field out"},
    {"diagnostics", kAnything, {}},
    {"inference_geo", kAnything, {}},
    {"mcp_servers", kEmpty, "servers of tools are not called; leave the field out"},
    {"metadata", kAnything, {}},
    {"service_tier", kAnything, {}},
    {"speed", kAnything, {}},
    {"user_profile_id", kAnything, {}},
    {"workspace_id", kAnything, {}},
};

constexpr std::pair<std::string_view, std::string_view> kChatNames[] = {
    {"response_format.json_schema", "output_config.format"},
    {"response_format", "output_config.format"},
    {".function.parameters", ".input_schema"},
    {".function", ""},
    {"reasoning_effort", "output_config.effort"},
    {"thinking_token_budget", "thinking.budget_tokens"},
};

class Reader {
 public:
  explicit Reader(const app::ServeOptions& options) : translation_(options) {}

  MessagesRequest read(const std::string& text, std::span<const std::string_view> fields) {
    files::JsonTree tree = parse_body(text);
    json& body = *tree;
    translation_.take_passive(body, kHints);
    translation_.check_body(body, fields);
    translation_.take_further(body);
    for (const std::string_view name : {"model", "temperature", "top_p", "stream"}) {
      if (const json* const value = files::find_given(body, name)) chat()[name] = *value;
    }
    read_conversation(body);
    read_ends(body, fields.size() == kMessages.size());
    read_tools(body);
    read_thinking(body);
    read_output(body);
    request_.generation = translation_.read(kChatNames);
    return std::move(request_);
  }

 private:
  JsonObject& chat() { return translation_.chat(); }

  void read_conversation(const json& body) {
    const JsonArray& list = list_in(body, "messages", kBodyName);
    if (list.empty()) throw bad_request("messages is empty, expected at least one", "messages");
    check_count(list.size(), translation_.options().limits.messages, "messages", "--max-messages");
    JsonArray messages;
    if (const json* const system = files::find_given(body, "system")) {
      add_system_blocks(*system, translation_, messages);
    }
    add_message_blocks(*files::find_given(body, "messages"), translation_, messages);
    chat()["messages"] = std::move(messages);
  }

  void read_ends(const json& body, bool has_answer) {
    if (!has_answer) return;
    chat()["max_completion_tokens"] = count_in(body, "max_tokens", kBodyName);
    if (files::find_given(body, "stop_sequences") == nullptr) return;
    const JsonArray& stops = list_in(body, "stop_sequences", kBodyName);
    check_count(stops.size(), translation_.options().limits.stop_strings, "stop_sequences",
                "--max-stop-strings");
    for (size_t i = 0; i < stops.size(); ++i) {
      const bool is_text = stops[i].is_string() && !files::text_of(stops[i]).empty();
      if (!is_text) {
        const std::string where = place_in("stop_sequences", i);
        throw bad_request(
            where + " is " + files::json_kind(stops[i]) + ", expected a string that is not empty",
            where);
      }
    }
    if (!stops.empty()) chat()["stop"] = stops;
  }

  void read_tools(const json& body) {
    JsonArray tools;
    if (files::find_given(body, "tools") != nullptr) {
      const JsonArray& list = list_in(body, "tools", kBodyName);
      for (size_t i = 0; i < list.size(); ++i) {
        tools.push_back(tool_of(list[i], place_in("tools", i)));
      }
    }
    read_choice(body, tools.empty());
    if (!tools.empty()) chat()["tools"] = std::move(tools);
  }

  /// {"name", "description", "input_schema", "strict"}
  json tool_of(const json& tool, const std::string& where) {
    constexpr std::string_view kKnown[] = {"type", "name", "description", "input_schema", "strict"};
    constexpr std::string_view kIgnored[] = {"cache_control", "allowed_callers", "defer_loading",
                                             "eager_input_streaming", "input_examples"};
    check_is_object(tool, where);
    if (const json* const type = files::find_given(tool, "type"); type != nullptr) {
      const std::string_view word = text_in(tool, "type", where);
      if (word != "custom") {
        refuse_at(where, "tools of type " + app::quote(word) +
                             " are not supported; expected \"custom\" with an input_schema");
      }
    }
    translation_.check_members(tool, where, "tools", {.known = kKnown, .ignored = kIgnored});
    const json* const schema = files::find_given(tool, "input_schema");
    if (schema == nullptr || !schema->is_object()) {
      refuse_at(where, "input_schema is missing or not an object");
    }
    JsonObject function{{"name", text_in(tool, "name", where)}};
    if (files::find_given(tool, "description") != nullptr) {
      function["description"] = text_in(tool, "description", where);
    }
    function["parameters"] = *schema;
    if (files::find_given(tool, "strict") != nullptr)
      function["strict"] = flag_in(tool, "strict", where);
    return JsonObject{{"type", "function"}, {"function", std::move(function)}};
  }

  void read_choice(const json& body, bool has_no_tools) {
    constexpr std::string_view kTypes[] = {"auto", "any", "tool", "none"};
    constexpr std::string_view kKnown[] = {"type", "name", "disable_parallel_tool_use"};
    const std::string where = "tool_choice";
    const json* const choice = files::find_given(body, where);
    if (choice == nullptr) return;
    check_is_object(*choice, where);
    translation_.check_members(*choice, where, where, {.known = kKnown});
    const std::string_view type = word_in(*choice, "type", where, kTypes);
    const bool must_call = type == "any" || type == "tool";
    if (has_no_tools) {
      if (must_call)
        throw bad_request("tool_choice asks for a call, and there are no tools", where);
      return;
    }
    if (type == "tool") {
      chat()[where] = JsonObject{{"type", "function"},
                                 {"function", {{"name", text_in(*choice, "name", where)}}}};
    } else {
      chat()[where] = type == "any" ? "required" : type;
    }
    if (flag_in(*choice, "disable_parallel_tool_use", where)) {
      chat()["parallel_tool_calls"] = false;
    }
  }

  /// Whether the model thinks is a variable of its template; without the field it is as there.
  void read_thinking(const json& body) {
    constexpr std::string_view kTypes[] = {"enabled", "adaptive", "disabled"};
    constexpr std::string_view kKnown[] = {"type", "budget_tokens", "display"};
    constexpr std::string_view kDisplays[] = {"summarized", "omitted"};
    const std::string where = "thinking";
    const json* const thinking = files::find_given(body, where);
    if (thinking == nullptr) return;
    check_is_object(*thinking, where);
    translation_.check_members(*thinking, where, where, {.known = kKnown});
    const std::string_view type = word_in(*thinking, "type", where, kTypes);
    request_.wants_thoughts = type != "disabled";
    request_.hides_thoughts = given_word_in(*thinking, "display", where, kDisplays) == "omitted";
    json& variables = chat()["chat_template_kwargs"];
    if (variables.is_null()) variables.emplace_object();
    check_is_object(variables, "chat_template_kwargs");
    for (const char* name : {"enable_thinking", "thinking"}) {  // what templates call it
      if (files::find_given(variables, name) == nullptr) {
        variables.get_object()[name] = request_.wants_thoughts;
      }
    }
    if (type == "enabled") {
      chat()["thinking_token_budget"] = count_in(*thinking, "budget_tokens", where);
    } else if (files::find_given(*thinking, "budget_tokens") != nullptr) {
      refuse_at(where, "budget_tokens belongs to type \"enabled\"; leave it out");
    }
  }

  void read_output(const json& body) {
    constexpr std::string_view kKnown[] = {"effort", "format"};
    constexpr std::string_view kFormat[] = {"type", "schema"};
    constexpr std::string_view kTypes[] = {"json_schema"};
    const json* const output = files::find_given(body, "output_config");
    if (output == nullptr) return;
    check_is_object(*output, "output_config");
    translation_.check_members(*output, "output_config", "output_config", {.known = kKnown});
    if (files::find_given(*output, "effort") != nullptr) {
      chat()["reasoning_effort"] = text_in(*output, "effort", "output_config");
    }
    const json* const format = files::find_given(*output, "format");
    if (format == nullptr) return;
    const std::string where = "output_config.format";
    check_is_object(*format, where);
    translation_.check_members(*format, where, where, {.known = kFormat});
    (void)word_in(*format, "type", where, kTypes);
    const json* const schema = files::find_given(*format, "schema");
    if (schema == nullptr) refuse_at(where, "field schema is missing");
    chat()["response_format"] =
        JsonObject{{"type", "json_schema"},
                   {"json_schema", {{"name", "answer"}, {"schema", *schema}, {"strict", true}}}};
  }

  Translation translation_;
  MessagesRequest request_;
};

}  // namespace

FieldNames messages_names() { return kChatNames; }

MessagesRequest read_messages_request(const std::string& body, const app::ServeOptions& options) {
  return Reader(options).read(body, kMessages);
}

MessagesRequest read_count_request(const std::string& body, const app::ServeOptions& options) {
  return Reader(options).read(body, kCounted);
}

}  // namespace heddle::serve
