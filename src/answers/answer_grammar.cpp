#include "answers/answer_grammar.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "heddle/core/check.h"
#include "heddle/core/error.h"

#include "answers/call_grammar.h"
#include "files/json_text.h"
#include "files/json_tree.h"
#include "files/json_value.h"
#include "files/printable.h"

namespace heddle::answers {
namespace {

using files::find_member;
using files::Json;
using files::JsonArray;
using files::JsonObject;
using Kind = AnswerFormat::Kind;

/// Letters and digits, and what the names of servers of tools have between these.
bool is_tool_name(std::string_view name) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_-.:/").find(c) != std::string_view::npos;
  };
  return !name.empty() && name.size() <= kMaxToolName &&
         std::all_of(name.begin(), name.end(), fits);
}

/// Apart from the memory of the tree that it is in.
Json copy_of(const Json& value) { return Json(value, boost::json::storage_ptr()); }

/// What a member must be, where it is given.
void check_kind(const Json* member, bool fits, const std::string& field, const char* expected) {
  HEDDLE_CHECK(member == nullptr || fits, field, " is ", files::json_kind(*member), ", expected ",
               expected);
}

/// The schema of a tool's arguments, which are an object; true: of any.
Json schema_of(const Json& function, const std::string& field) {
  const Json* given = find_member(function, "parameters");
  if (given == nullptr || given->is_null()) return true;
  const bool any = given->is_bool() && given->get_bool();
  check_kind(given, given->is_object() || any, field, "an object");
  if (any || given->get_object().empty()) return true;
  Json schema = copy_of(*given);
  const Json* type = find_member(schema, "type");
  HEDDLE_CHECK(type == nullptr || files::is_text(*type, "object"), field, ".type is ",
               files::printable(files::json_text(*type)), ", expected \"object\"");
  if (type == nullptr) schema.get_object()["type"] = "object";
  const Json* properties = find_member(schema, "properties");
  check_kind(properties, properties != nullptr && properties->is_object(), field + ".properties",
             "an object");
  return schema;
}

GrammarTool grammar_tool(const Json& tool, const std::string& field) {
  const Json* function = find_member(tool, "function");
  HEDDLE_CHECK(function != nullptr && function->is_object(), field,
               ".function is missing, expected an object");
  const Json* name = find_member(*function, "name");
  HEDDLE_CHECK(name != nullptr && name->is_string() && is_tool_name(files::text_of(*name)), field,
               ".function.name is ",
               name == nullptr ? "missing" : files::printable(files::json_text(*name)),
               ", expected 1 to ", kMaxToolName, " letters, digits and signs of _-.:/");
  const Json* strict = find_member(*function, "strict");
  const bool is_given = strict != nullptr && !strict->is_null();
  check_kind(strict, !is_given || strict->is_bool(), field + ".function.strict", "true or false");
  GrammarTool result;
  result.name = files::text_of(*name);
  result.schema = schema_of(*function, field + ".function.parameters");
  if (is_given) result.strict = strict->get_bool();
  return result;
}

std::vector<GrammarTool> tools_of(const ToolRequest& request) {
  std::vector<GrammarTool> tools;
  if (request.tools.empty()) return tools;
  const files::JsonTree tree = request.tools.tree("tools");
  HEDDLE_CHECK(tree->is_array(), "tools is ", files::json_kind(*tree), ", expected an array");
  size_t index = 0;
  for (const Json& tool : tree->get_array()) {
    tools.push_back(grammar_tool(tool, "tools[" + std::to_string(index++) + "]"));
  }
  if (request.choice != ToolChoice::kFunction) return tools;
  std::erase_if(tools, [&](const GrammarTool& tool) { return tool.name != request.function; });
  HEDDLE_CHECK(!tools.empty(), "tool_choice is the function ", files::quote(request.function),
               ", expected one of tools");
  return tools;
}

/// Which schemas the arguments are held to, as vLLM has it: where the model is free to call, those
/// of tools that ask for it; where it must, all but those that ask not to.
void choose_schemas(std::vector<GrammarTool>& tools, const ToolRequest& request) {
  const bool must = request.choice != ToolChoice::kAuto;
  for (GrammarTool& tool : tools) {
    const bool is_held = request.strict == StrictLevel::kParameter || tool.strict.value_or(must);
    if (!is_held) tool.schema = true;
  }
}

Json of_any_text() { return JsonObject{{"type", "any_text"}}; }

Json tag_of_tag(const std::string& source) {
  const files::JsonTree tree = files::parse_json(source, "format", {.depth = 100});
  const Json* format = find_member(*tree, "format");
  HEDDLE_CHECK(format != nullptr && format->is_object(),
               "format is a structural tag without \"format\", expected an object of this name");
  return copy_of(*format);
}

/// The content as an element of a structural tag.
Json tag_of_content(const AnswerFormat& content) {
  switch (content.kind) {
    case Kind::kText: return of_any_text();
    case Kind::kJson: return json_schema_tag(true);
    case Kind::kJsonSchema: {
      const files::JsonTree schema = files::parse_json(content.source, "format", {.depth = 100});
      return json_schema_tag(*schema);
    }
    case Kind::kRegex:
      if (content.source.empty()) return choice_tag({""});
      return JsonObject{{"type", "regex"}, {"pattern", content.source}};
    case Kind::kChoice: return choice_tag(content.choices);
    case Kind::kGrammar: return JsonObject{{"type", "grammar"}, {"grammar", content.source}};
    case Kind::kStructuralTag: return tag_of_tag(content.source);
    case Kind::kLark: break;
  }
  return JsonObject{{"type", "grammar"}, {"syntax", "lark"}, {"grammar", content.source}};
}

/// Thoughts, which an answer that the prompt has not begun with them may be without, and line ends
/// after them.
void add_thoughts(JsonArray& elements, const ReasoningStyle& reasoning) {
  Json thoughts = JsonObject{{"type", "tag"},
                             {"begin", reasoning.has_begun ? "" : reasoning.begin},
                             {"content", of_any_text()},
                             {"end", reasoning.end}};
  Json after = JsonObject{{"type", "regex"}, {"pattern", "\\n{0,2}"}};
  Json both = JsonObject{{"type", "sequence"},
                         {"elements", JsonArray{std::move(thoughts), std::move(after)}}};
  if (!reasoning.has_begun) both = JsonObject{{"type", "optional"}, {"content", std::move(both)}};
  elements.push_back(std::move(both));
}

}  // namespace

AnswerFormat answer_grammar(const AnswerStyle& style, const ToolRequest& request,
                            const AnswerFormat& content) {
  std::vector<GrammarTool> tools;
  if (request.choice != ToolChoice::kNone) tools = tools_of(request);
  const bool must =
      request.choice == ToolChoice::kRequired || request.choice == ToolChoice::kFunction;
  HEDDLE_CHECK(!must || !tools.empty(), "tool_choice asks for a call, expected tools");
  if (must && style.tools == ToolFormat::kNone) {
    throw_error(ErrorCode::kUnsupported,
                "tool_choice asks for a call, but the chat template has no form of calls that is "
                "known: --tool-parser names one");
  }
  const bool may = !tools.empty() && style.tools != ToolFormat::kNone;
  const bool asks = request.strict != StrictLevel::kAuto ||
                    std::any_of(tools.begin(), tools.end(), [](const GrammarTool& tool) {
                      return tool.strict.value_or(false);
                    });
  const bool holds_calls = may && (must || asks || !content.is_free());
  if (!holds_calls && content.is_free()) return {};
  const bool thinks = style.reasoning.is_on && !style.reasoning.end.empty();
  if (!holds_calls && !thinks) return content;

  if (holds_calls) choose_schemas(tools, request);
  const bool is_single = !request.allows_several || request.choice == ToolChoice::kFunction;
  JsonArray elements;
  if (thinks) add_thoughts(elements, style.reasoning);
  if (!holds_calls) {
    elements.push_back(tag_of_content(content));
  } else if (must) {
    elements.push_back(calls_alone(style.tools, tools, is_single));
  } else if (content.is_free()) {
    elements.push_back(calls_in_text(style.tools, tools, is_single));
  } else {
    elements.push_back(JsonObject{{"type", "or"},
                                  {"elements", JsonArray{calls_alone(style.tools, tools, is_single),
                                                         tag_of_content(content)}}});
  }
  Json format = elements.size() == 1 ? std::move(elements[0])
                                     : JsonObject{{"type", "sequence"}, {"elements", elements}};
  const JsonObject tag{{"type", "structural_tag"}, {"format", std::move(format)}};
  return {.kind = Kind::kStructuralTag, .source = files::json_text(tag)};
}

}  // namespace heddle::answers
