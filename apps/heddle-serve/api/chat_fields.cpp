#include "api/chat_fields.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "api/fields.h"
#include "files/json_text.h"
#include "files/json_tree.h"
#include "request_json/field_error.h"
#include "request_json/row_reader.h"
#include "request_json/shown.h"

namespace heddle::serve {
namespace {

using app::refuse_field;
using app::RowReader;
using files::json_type;
using files::JsonArray;
using files::JsonObject;
using files::text_of;

/// The object `function` of a tool or of a choice, {"type": "function", "function": {...}}.
const json& function_of(const json& value, const std::string& where) {
  if (!value.is_object()) refuse_field(where, " is ", json_type(value), ", expected an object");
  const json* const type = files::find_given(value, "type");
  if (type == nullptr || !files::is_text(*type, "function")) {
    refuse_field(where + ".type", " is ",
                 type == nullptr ? "missing" : app::shown(files::json_text(*type)),
                 ", expected \"function\"");
  }
  const json* const function = files::find_given(value, "function");
  if (function == nullptr || !function->is_object()) {
    refuse_field(where + ".function", " is missing or no object");
  }
  return *function;
}

std::string name_of_function(const json& function, const std::string& where) {
  const std::string field = where + ".function.name";
  const json* const name = files::find_given(function, "name");
  if (name == nullptr || !name->is_string()) refuse_field(field, " is missing or no string");
  const size_t size = text_of(*name).size();
  if (size == 0 || size > answers::kMaxToolName) {
    refuse_field(field, " has ", size, " bytes, expected 1 to ", answers::kMaxToolName);
  }
  return std::string(text_of(*name));
}

/// Tools that answers may call; returns their names.
std::set<std::string> check_tools(const JsonArray& tools) {
  std::set<std::string> names;
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string where = "tools[" + std::to_string(i) + "]";
    const json& function = function_of(tools[i], where);
    const std::string name = name_of_function(function, where);
    if (!names.insert(name).second) {
      refuse_field(where + ".function.name", " is ", app::quote(name), ", as that of another tool");
    }
    const json* const parameters = files::find_given(function, "parameters");
    if (parameters != nullptr && !parameters->is_object()) {
      refuse_field(where + ".function.parameters", " is ", json_type(*parameters),
                   ", expected an object: a JSON schema");
    }
    const json* const strict = files::find_given(function, "strict");
    if (strict != nullptr && !strict->is_bool()) {
      refuse_field(where + ".function.strict", " is ", json_type(*strict),
                   ", expected true or false");
    }
  }
  return names;
}

void check_is_tool(const std::string& name, const std::set<std::string>& names,
                   const std::string& field) {
  if (!names.contains(name)) {
    refuse_field(field, " is ", app::quote(name), ", which is none of the tools");
  }
}

answers::ToolChoice choice_named(const json& word, const std::string& field) {
  using answers::ToolChoice;
  if (files::is_text(word, "none")) return ToolChoice::kNone;
  if (files::is_text(word, "auto")) return ToolChoice::kAuto;
  if (files::is_text(word, "required")) return ToolChoice::kRequired;
  refuse_field(field, " is ", app::shown(files::json_text(word)),
               ", expected \"none\", \"auto\", \"required\" or an object with a function");
}

/// In memory of its own, which copies of a request share.
JsonValue shared_array(const JsonArray& array) {
  auto tree = std::make_shared<files::JsonTree>();
  **tree = array;
  return JsonValue(std::move(tree));
}

/// OpenAI's {"mode": "auto", "tools": [{"type": "function", "function": {"name": "now"}}, ...]}:
/// these alone may be called.
void read_allowed(const json& choice, const JsonArray& tools, const std::set<std::string>& names,
                  answers::ToolRequest& request) {
  const std::string field = "tool_choice.allowed_tools";
  const json* const allowed = files::find_given(choice, "allowed_tools");
  if (allowed == nullptr || !allowed->is_object()) refuse_field(field, " is missing or no object");
  const json* const mode = files::find_given(*allowed, "mode");
  const json* const list = files::find_given(*allowed, "tools");
  if (list == nullptr || !list->is_array() || files::size_of(*list) == 0) {
    refuse_field(field + ".tools", " is missing or not a list of at least one tool");
  }
  request.choice =
      mode == nullptr ? answers::ToolChoice::kAuto : choice_named(*mode, field + ".mode");
  std::set<std::string> chosen;
  for (const json& tool : list->get_array()) {
    const std::string where = field + ".tools[]";
    chosen.insert(name_of_function(function_of(tool, where), where));
    check_is_tool(*chosen.rbegin(), names, where + ".function.name");
  }
  JsonArray kept;
  for (const json& tool : tools) {
    const std::string_view name = text_of(tool.at("function").at("name"));
    if (chosen.contains(std::string(name))) kept.push_back(tool);
  }
  request.tools = shared_array(kept);
}

void read_choice(const json& choice, const JsonArray& tools, answers::ToolRequest& request) {
  const std::string field = "tool_choice";
  const bool is_none = files::is_text(choice, "none");
  // The model sees them as they are, whatever they hold.
  const std::set<std::string> names = is_none ? std::set<std::string>() : check_tools(tools);
  request.tools = shared_array(tools);
  if (!choice.is_object()) {
    request.choice = choice_named(choice, field);
    return;
  }
  const json* const type = files::find_given(choice, "type");
  if (type != nullptr && files::is_text(*type, "allowed_tools")) {
    return read_allowed(choice, tools, names, request);
  }
  request.choice = answers::ToolChoice::kFunction;
  request.function = name_of_function(function_of(choice, field), field);
  check_is_tool(request.function, names, field + ".function.name");
}

answers::StrictLevel strict_level(const std::string& name) {
  if (name == "function") return answers::StrictLevel::kFunction;
  return name == "parameter" ? answers::StrictLevel::kParameter : answers::StrictLevel::kAuto;
}

}  // namespace

void read_tools(json& body, const app::ServeOptions& options, Generation& generation) {
  answers::ToolRequest& request = generation.tools;
  const RowReader row(body, "request");
  request.strict = strict_level(options.tool_strict_level);
  request.allows_several = row.flag("parallel_tool_calls", true);
  const bool parses = row.flag("parse_tool_calls", true);
  json choice = take(body, "tool_choice");
  const json* const tools = row.find("tools");
  if (tools != nullptr && !tools->is_array()) {
    refuse_field("tools", " is ", json_type(*tools), ", expected an array of objects");
  }
  if (tools == nullptr || files::size_of(*tools) == 0) {
    static_cast<void>(take(body, "tools"));
    const bool is_free =
        choice.is_null() || files::is_text(choice, "none") || files::is_text(choice, "auto");
    if (!is_free) {
      refuse_field("tool_choice", " is ", app::shown(files::json_text(choice)),
                   ", but the request has no tools");
    }
    return;
  }
  if (choice.is_null()) choice = "auto";
  read_choice(choice, tools->get_array(), request);
  if (request.choice == answers::ToolChoice::kNone) return;
  generation.parser.finds_calls = parses;
  generation.parser.max_calls = request.allows_several ? 0 : 1;
}

void read_reasoning(json& body, Generation& generation, Request& request) {
  const RowReader row(body, "request");
  generation.hides_reasoning = !row.flag("include_reasoning", true);
  generation.holds_reasoning = !row.flag("stream_reasoning", true);
  generation.parser.finds_reasoning = row.flag("separate_reasoning", true);
  if (const json* const form = row.find("reasoning_format")) {
    const bool is_apart = files::is_text(*form, "auto") || files::is_text(*form, "deepseek");
    if (!is_apart && !files::is_text(*form, "none")) {
      refuse_field("reasoning_format", " is ", app::shown(files::json_text(*form)),
                   ", expected \"auto\", \"deepseek\" or \"none\"");
    }
    generation.parser.finds_reasoning = generation.parser.finds_reasoning && is_apart;
  }
  request.thinking.max_tokens =
      row.integer("thinking_token_budget", -1, -1, std::numeric_limits<int64_t>::max());
  const json* const effort = row.find("reasoning_effort");
  if (effort == nullptr) return;
  const std::string word = row.text("reasoning_effort", *effort);
  generation.gives_effort = true;
  json& kwargs = body.as_object()["chat_template_kwargs"];
  if (kwargs.is_null()) kwargs.emplace_object();
  // What is no object is refused where it is read.
  if (kwargs.is_object() && files::find_given(kwargs, "reasoning_effort") == nullptr) {
    kwargs.get_object()["reasoning_effort"] = word;
  }
}

}  // namespace heddle::serve
