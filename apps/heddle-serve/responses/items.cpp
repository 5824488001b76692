#include "responses/items.h"

#include <algorithm>
#include <array>

#include "api/api_error.h"
#include "api/bounds.h"
#include "request_json/shown.h"

namespace heddle::serve {
namespace {

// Members that say nothing to the model are known; so are those that our own answers have.
constexpr std::string_view kMessage[] = {"type", "id", "role", "content", "status", "phase"};
constexpr std::string_view kCall[] = {"type", "id", "call_id", "name", "arguments", "status"};
constexpr std::string_view kOutput[] = {"type", "id", "call_id", "name", "output", "status"};
constexpr std::string_view kReasoning[] = {"type", "id", "summary", "content", "status"};
constexpr std::string_view kText[] = {"type", "text", "refusal", "annotations", "logprobs"};
constexpr std::string_view kBreakpoint[] = {"prompt_cache_breakpoint"};
constexpr std::string_view kCaller[] = {"caller", "namespace", "async"};
constexpr std::string_view kEncrypted[] = {"encrypted_content"};
constexpr std::string_view kTextTypes[] = {"input_text", "output_text", "text", "reasoning_text",
                                           "summary_text"};
constexpr std::string_view kRoles[] = {"user", "assistant", "system", "developer"};

/// The items of a conversation on their way to messages.
class Items {
 public:
  Items(Translation& translation, JsonArray& messages)
      : translation_(translation), messages_(messages) {}

  void add(const json& item, const std::string& where) {
    check_is_object(item, where);
    const bool is_message =
        files::find_given(item, "type") == nullptr && files::find_given(item, "role") != nullptr;
    const std::string_view type = is_message ? "message" : text_in(item, "type", where);
    if (type == "message") return add_message(item, where);
    if (type == "function_call") return add_call(item, where);
    if (type == "function_call_output") return add_output(item, where);
    if (type == "reasoning") return add_reasoning(item, where);
    refuse_at(where, "items of type " + app::quote(type) +
                         " are not supported; expected a message, function_call, "
                         "function_call_output or reasoning");
  }

 private:
  /// A text, or a list of parts that are texts.
  Texts texts_of(const json& content, const std::string& where) {
    const auto add = [this](const json& part, const std::string& place, Texts& texts) {
      add_part(part, place, texts);
    };
    return read_texts(content, where, "parts", add);
  }

  void add_part(const json& part, const std::string& where, Texts& texts) {
    const std::string_view type = text_in(part, "type", where);
    const bool is_refusal = type == "refusal";
    if (!is_refusal && std::ranges::find(kTextTypes, type) == std::end(kTextTypes)) {
      refuse_at(where, "parts of type " + app::quote(type) + " are not supported, texts are");
    }
    translation_.check_members(part, where, "input.content",
                               {.known = kText, .ignored = kBreakpoint});
    texts.add(text_in(part, is_refusal ? "refusal" : "text", where));
  }

  void add_message(const json& item, const std::string& where) {
    translation_.check_members(item, where, "input", {.known = kMessage});
    const std::string_view role = word_in(item, "role", where, kRoles);
    const json* const content = files::find_given(item, "content");
    if (content == nullptr) refuse_at(where, "field content is missing");
    const Texts texts = texts_of(*content, where + ".content");
    if (role != "assistant") {
      messages_.push_back(JsonObject{{"role", role}, {"content", texts.content()}});
      has_turn_ = false;
      return;
    }
    JsonObject* const turn = open_turn();
    const bool goes_on =
        turn != nullptr && !turn->contains("content") && !turn->contains("tool_calls");
    (goes_on ? *turn : new_turn())["content"] = texts.content();
  }

  void add_call(const json& item, const std::string& where) {
    translation_.check_members(item, where, "input", {.known = kCall, .ignored = kCaller});
    JsonObject* const turn = open_turn();
    json& calls = (turn != nullptr ? *turn : new_turn())["tool_calls"];
    if (calls.is_null()) calls.emplace_array();
    calls.get_array().push_back(JsonObject{{"id", text_in(item, "call_id", where)},
                                           {"type", "function"},
                                           {"function",
                                            {{"name", text_in(item, "name", where)},
                                             {"arguments", text_in(item, "arguments", where)}}}});
  }

  void add_output(const json& item, const std::string& where) {
    translation_.check_members(item, where, "input", {.known = kOutput, .ignored = kCaller});
    const json* const output = files::find_given(item, "output");
    if (output == nullptr) refuse_at(where, "field output is missing");
    messages_.push_back(JsonObject{{"role", "tool"},
                                   {"tool_call_id", text_in(item, "call_id", where)},
                                   {"content", texts_of(*output, where + ".output").content()}});
    has_turn_ = false;
  }

  /// Thoughts belong to what follows them. Of what another service has encrypted nothing is known.
  void add_reasoning(const json& item, const std::string& where) {
    translation_.check_members(item, where, "input", {.known = kReasoning, .ignored = kEncrypted});
    Texts thoughts;
    for (const char* field : {"content", "summary"}) {
      const json* const list = files::find_given(item, field);
      if (list == nullptr || !thoughts.empty()) continue;
      thoughts = texts_of(json(list_in(item, field, where)), where + "." + field);
    }
    if (thoughts.empty()) return;
    JsonObject& turn = new_turn();
    turn["reasoning_content"] = thoughts.joined();
  }

  /// The turn of the assistant that the last items belong to; nullptr: there is none.
  JsonObject* open_turn() { return has_turn_ ? &messages_.back().get_object() : nullptr; }
  JsonObject& new_turn() {
    has_turn_ = true;
    messages_.push_back(JsonObject{{"role", "assistant"}});
    return messages_.back().get_object();
  }

  Translation& translation_;
  JsonArray& messages_;
  bool has_turn_ = false;
};

}  // namespace

void add_input(const json& input, Translation& translation, JsonArray& messages) {
  if (input.is_string()) {
    messages.push_back(JsonObject{{"role", "user"}, {"content", input}});
    return;
  }
  if (!input.is_array() || input.get_array().empty()) {
    throw bad_request("input is missing or of the wrong type; expected a string or a list of items",
                      "input");
  }
  Items items(translation, messages);
  const JsonArray& list = input.get_array();
  check_count(list.size(), translation.options().limits.messages, "input", "--max-messages");
  for (size_t i = 0; i < list.size(); ++i) items.add(list[i], place_in("input", i));
}

}  // namespace heddle::serve
