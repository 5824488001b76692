#include "answers/call_grammar.h"

#include <string_view>
#include <utility>

#include "answers/call_syntax.h"
#include "files/json_value.h"

namespace heddle::answers {
namespace {

using files::Json;
using files::JsonArray;
using files::JsonObject;

Json tag_between(std::string begin, Json content, std::string_view end) {
  return JsonObject{
      {"type", "tag"}, {"begin", std::move(begin)}, {"content", std::move(content)}, {"end", end}};
}

/// One call, with `begin` and `end` around it.
Json tag_of_call(const CallForm& form, const GrammarTool& tool, std::string_view begin,
                 std::string_view end) {
  std::string start(begin);
  switch (form.body) {
    case kNamed:
      return tag_between(start + tool.name + "[ARGS]", json_schema_tag(tool.schema), end);
    case kXml: {
      Json arguments = json_schema_tag(tool.schema);
      arguments.get_object()["style"] = "qwen_xml";
      return tag_between(start + "<function=" + tool.name + ">\n", std::move(arguments),
                         "\n</function>" + std::string(end));
    }
    default: break;
  }
  start += "{\"name\": \"" + tool.name + "\", \"" + std::string(form.key) + "\": ";
  return tag_between(std::move(start), json_schema_tag(tool.schema), "}" + std::string(end));
}

JsonArray tags_of_calls(const CallForm& form, const std::vector<GrammarTool>& tools,
                        std::string_view begin, std::string_view end) {
  JsonArray tags;
  for (const GrammarTool& tool : tools) tags.push_back(tag_of_call(form, tool, begin, end));
  return tags;
}

Json separated(JsonArray tags, std::string_view separator, bool is_single) {
  return JsonObject{{"type", "tags_with_separator"},
                    {"tags", std::move(tags)},
                    {"separator", separator},
                    {"at_least_one", true},
                    {"stop_after_first", is_single}};
}

/// All calls of an answer, in one begin and end.
Json tag_of_list(const CallForm& form, const std::vector<GrammarTool>& tools, bool is_single) {
  Json calls;
  if (form.body == kPythonList || form.body == kPythonCode) {
    calls = JsonObject{{"type", "grammar"},
                       {"grammar", python_grammar(tools, form.separator, is_single)}};
  } else {
    calls = separated(tags_of_calls(form, tools, "", ""), form.separator, is_single);
  }
  return tag_between(std::string(form.begin), std::move(calls), form.end);
}

/// What a call without a mark begins with.
JsonArray beginnings(const CallForm& form, const std::vector<GrammarTool>& tools) {
  JsonArray texts;
  if (form.body == kObjects) texts.emplace_back("{\"name\": ");
  if (form.body != kObjects) {
    for (const GrammarTool& tool : tools) texts.emplace_back("[" + tool.name + "(");
  }
  return texts;
}

}  // namespace

Json json_schema_tag(const Json& schema) {
  const bool any = schema.is_bool() && schema.get_bool();
  return JsonObject{{"type", "json_schema"},
                    {"json_schema", any ? Json(JsonObject{{"type", "object"}}) : schema}};
}

Json choice_tag(const std::vector<std::string>& choices) {
  JsonArray elements;
  for (const std::string& choice : choices) {
    elements.push_back(JsonObject{{"type", "const_string"}, {"value", choice}});
  }
  return JsonObject{{"type", "or"}, {"elements", std::move(elements)}};
}

Json calls_alone(ToolFormat format, const std::vector<GrammarTool>& tools, bool is_single) {
  const CallForm& form = call_form(format);
  if (form.is_list) return tag_of_list(form, tools, is_single);
  return separated(tags_of_calls(form, tools, form.begin, form.end), form.separator, is_single);
}

Json calls_in_text(ToolFormat format, const std::vector<GrammarTool>& tools, bool is_single) {
  const CallForm& form = call_form(format);
  const bool has_mark = format != ToolFormat::kLlama3Json && format != ToolFormat::kPythonic;
  if (!has_mark) {
    Json text = JsonObject{{"type", "any_text"}, {"excludes", beginnings(form, tools)}};
    return JsonObject{
        {"type", "or"},
        {"elements", JsonArray{calls_alone(format, tools, is_single), std::move(text)}}};
  }
  const std::string_view trigger = form.trigger.empty() ? form.begin : form.trigger;
  JsonArray tags = form.is_list ? JsonArray{tag_of_list(form, tools, is_single)}
                                : tags_of_calls(form, tools, form.begin, form.end);
  return JsonObject{{"type", "triggered_tags"},
                    {"triggers", JsonArray{Json(trigger)}},
                    {"tags", std::move(tags)},
                    {"stop_after_first", is_single}};
}

}  // namespace heddle::answers
