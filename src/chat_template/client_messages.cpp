#include "chat_template/client_messages.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "heddle/core/error.h"

#include "files/parse_json.h"

namespace heddle::chat_template {
namespace {

using json = nlohmann::ordered_json;

constexpr size_t kMaxDepth = 100;  // of arguments; deeper ones stay text

/// Puts `value` in the place of what is there, which is taken apart without asking for memory.
void replace(json& place, JsonValue value) { place.swap(*value); }

/// The texts of parts with a newline between them; nothing where one is no text.
std::optional<std::string> joined(const json& parts) {
  std::string text;
  bool is_first = true;
  for (const json& part : parts) {
    const bool is_text = part.is_object() && part.contains("text") && part["text"].is_string();
    if (!is_text) return std::nullopt;
    if (!std::exchange(is_first, false)) text += '\n';
    text += part["text"].get_ref<const std::string&>();
  }
  return text;
}

/// [{"type": "text", "text": `text`}], or [] for no text.
JsonValue parts_of(const json& text) {
  JsonValue parts(json::array());
  if (text.is_null()) return parts;
  json& part = (*parts).emplace_back(json::object());
  files::add_member(part, "type") = "text";
  files::add_member(part, "text") = text;
  return parts;
}

void adapt_content(json& message, const TemplateFacts& facts) {
  const bool knows_parts_alone = facts.iterates_content && !facts.tests_strings;
  const auto found = message.find("content");
  json& content = found != message.end() ? *found : files::add_member(message, "content");
  if (knows_parts_alone && (content.is_null() || content.is_string())) {
    replace(content, parts_of(content));
  } else if (content.is_null()) {
    content = "";
  } else if (content.is_array() && !facts.iterates_content) {
    if (auto text = joined(content)) replace(content, JsonValue(json(std::move(*text))));
  }
}

/// The JSON object that the text is; null: it is none.
JsonValue object_of(const std::string& text) {
  if (text.empty()) return JsonValue(json::object());
  try {
    JsonValue value = files::parse_json<json>(text, "arguments", {.depth = kMaxDepth});
    if (value->is_object()) return value;
  } catch (const Error&) {  // a model wrote it: it may be anything
  }
  return {};
}

void adapt_calls(json& message, size_t place, std::vector<ArgumentText>& replaced) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || !calls->is_array()) return;
  if (calls->empty()) {
    *calls = nullptr;  // variables_of leaves it out
    return;
  }
  for (size_t i = 0; i < calls->size(); ++i) {
    json& call = (*calls)[i];
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) continue;
    const auto arguments = call["function"].find("arguments");
    const bool is_text = arguments != call["function"].end() && arguments->is_string();
    if (!is_text) continue;
    JsonValue object = object_of(arguments->get_ref<const std::string&>());
    if (object->is_null()) continue;
    replaced.push_back({place, i, arguments->get<std::string>()});
    replace(*arguments, std::move(object));
  }
}

}  // namespace

std::vector<ArgumentText> adapt_messages(json& messages, const TemplateFacts& facts) {
  std::vector<ArgumentText> replaced;
  if (!messages.is_array()) return replaced;
  for (size_t i = 0; i < messages.size(); ++i) {
    json& message = messages[i];
    if (!message.is_object()) continue;
    adapt_content(message, facts);
    adapt_calls(message, i, replaced);
    const auto role = message.find("role");
    const bool has_role = role != message.end() && role->is_string();
    const bool is_developer = has_role && role->get_ref<const std::string&>() == "developer";
    if (is_developer && !facts.knows_developers) *role = "system";
  }
  return replaced;
}

void restore_arguments(json& messages, const std::vector<ArgumentText>& arguments) {
  for (const ArgumentText& each : arguments) {
    json& call = messages[each.message]["tool_calls"][each.call];
    replace(call["function"]["arguments"], JsonValue(json(each.text)));
  }
}

void check_are_read(const Conversation& conversation, const TemplateFacts& facts) {
  const auto check = [](const JsonValue& given, bool is_read, const char* name) {
    const bool is_given = given->is_array() && !given->empty() && given->front().is_object();
    HEDDLE_CHECK(is_read || !is_given, name, ": the model's chat template has no place for ", name,
                 ", so that the model would not see them; leave them out, or choose a model whose "
                 "template has one");
  };
  check(conversation.tools, facts.reads_tools, "tools");
  check(conversation.documents, facts.reads_documents, "documents");
}

}  // namespace heddle::chat_template
