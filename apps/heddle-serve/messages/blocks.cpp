#include "messages/blocks.h"

#include "api/api_error.h"
#include "request_json/shown.h"

namespace heddle::serve {
namespace {

constexpr std::string_view kMarks[] = {"cache_control", "citations"};
constexpr std::string_view kTextBlock[] = {"type", "text"};
constexpr std::string_view kThinking[] = {"type", "thinking", "signature"};
constexpr std::string_view kRedacted[] = {"type", "data"};
constexpr std::string_view kToolUse[] = {"type", "id", "name", "input"};
constexpr std::string_view kToolResult[] = {"type", "tool_use_id", "content", "is_error"};
constexpr std::string_view kUseMarks[] = {"cache_control", "caller", "toolset_name"};
constexpr std::string_view kResultMarks[] = {"cache_control", "toolset_name"};

const std::string kPath = "messages.content";

void add_text_block(const json& block, const std::string& where, const std::string& path,
                    Translation& translation, Texts& texts) {
  translation.check_members(block, where, path, {.known = kTextBlock, .ignored = kMarks});
  texts.add(text_in(block, "text", where));
}

/// A text, or a list of blocks that are texts.
Texts texts_alone(const json& content, const std::string& where, const std::string& path,
                  Translation& translation) {
  const auto add = [&](const json& block, const std::string& place, Texts& texts) {
    const std::string_view type = text_in(block, "type", place);
    if (type != "text") {
      refuse_at(place, "blocks of type " + app::quote(type) + " are not supported, texts are");
    }
    add_text_block(block, place, path, translation, texts);
  };
  return read_texts(content, where, "blocks", add);
}

/// The messages of a body on their way to those of a chat completion.
class Blocks {
 public:
  Blocks(Translation& translation, JsonArray& messages)
      : translation_(translation), messages_(messages) {}

  void add(const json& message, const std::string& where) {
    constexpr std::string_view kMembers[] = {"role", "content"};
    constexpr std::string_view kRoles[] = {"user", "assistant", "system"};
    check_is_object(message, where);
    translation_.check_members(message, where, "messages", {.known = kMembers});
    const std::string role(word_in(message, "role", where, kRoles));
    const json* const content = files::find_given(message, "content");
    if (content == nullptr) refuse_at(where, "field content is missing");
    if (role != role_) end_turn();
    role_ = role;
    const std::string place = where + ".content";
    if (content->is_string() || role == "system") {
      texts_.add(texts_alone(*content, place, kPath, translation_));
      return;
    }
    if (!content->is_array()) {
      throw bad_request(
          place + " is " + files::json_kind(*content) + ", expected a string or a list of blocks",
          place);
    }
    const JsonArray& blocks = content->get_array();
    for (size_t i = 0; i < blocks.size(); ++i) add_block(blocks[i], place_in(place, i));
  }

  /// The end of the list.
  void finish() {
    const bool goes_on = role_ == "assistant";
    if (goes_on && !calls_.empty()) {
      throw bad_request(
          "messages: the last message calls tools; a message with their results must follow it",
          "messages");
    }
    end_turn();
    if (goes_on) messages_.back().get_object()["prefix"] = true;
  }

 private:
  void add_block(const json& block, const std::string& where) {
    check_is_object(block, where);
    const std::string_view type = text_in(block, "type", where);
    const bool is_user = role_ == "user";
    if (type == "text") return add_text_block(block, where, kPath, translation_, texts_);
    if (type == "tool_result" && is_user) return add_result(block, where);
    if (type == "tool_use" && !is_user) return add_use(block, where);
    if (type == "thinking" && !is_user) {
      translation_.check_members(block, where, kPath, {.known = kThinking, .ignored = kMarks});
      thoughts_ += text_in(block, "thinking", where);
      return;
    }
    if (type == "redacted_thinking" && !is_user) {  // of another service: nothing is known of it
      translation_.check_members(block, where, kPath, {.known = kRedacted});
      return translation_.ignore(kPath + ".redacted_thinking");
    }
    refuse_at(
        where,
        "blocks of type " + app::quote(type) + " are not supported in a message of the " + role_ +
            (is_user ? "; expected text or tool_result" : "; expected text, thinking or tool_use"));
  }

  void add_use(const json& block, const std::string& where) {
    translation_.check_members(block, where, kPath, {.known = kToolUse, .ignored = kUseMarks});
    const json* const input = files::find_given(block, "input");
    if (input == nullptr || !input->is_object()) {
      refuse_at(where, "input is missing or not an object");
    }
    calls_.push_back(
        JsonObject{{"id", text_in(block, "id", where)},
                   {"type", "function"},
                   {"function", {{"name", text_in(block, "name", where)}, {"arguments", *input}}}});
  }

  /// A message of its own, after the text that came before it.
  void add_result(const json& block, const std::string& where) {
    translation_.check_members(block, where, kPath,
                               {.known = kToolResult, .ignored = kResultMarks});
    if (flag_in(block, "is_error", where)) translation_.ignore(kPath + ".is_error");
    if (!is_empty()) push_message();
    const json* const content = files::find_given(block, "content");
    Texts texts;
    if (content != nullptr) texts = texts_alone(*content, where + ".content", kPath, translation_);
    messages_.push_back(JsonObject{{"role", "tool"},
                                   {"tool_call_id", text_in(block, "tool_use_id", where)},
                                   {"content", texts.content()}});
    has_results_ = true;
  }

  [[nodiscard]] bool is_empty() const {
    return texts_.empty() && calls_.empty() && thoughts_.empty();
  }

  void push_message() {
    JsonObject message{{"role", role_}, {"content", texts_.content()}};
    if (!thoughts_.empty()) message["reasoning_content"] = thoughts_;
    if (!calls_.empty()) message["tool_calls"] = std::move(calls_);
    messages_.push_back(std::move(message));
    texts_ = {};
    calls_ = {};
    thoughts_.clear();
  }

  /// The turn of `role_` is over. One that had results of tools alone has no message besides.
  void end_turn() {
    if (!role_.empty() && (!is_empty() || !has_results_)) push_message();
    has_results_ = false;
  }

  Translation& translation_;
  JsonArray& messages_;
  // The message that neighbours of its role go into:
  std::string role_{}, thoughts_{};
  Texts texts_{};
  JsonArray calls_{};
  bool has_results_ = false;  // it has given messages of tools
};

}  // namespace

void add_system_blocks(const json& system, Translation& translation, JsonArray& messages) {
  const Texts texts = texts_alone(system, "system", "system", translation);
  if (!texts.empty()) {
    messages.push_back(JsonObject{{"role", "system"}, {"content", texts.content()}});
  }
}

void add_message_blocks(const json& list, Translation& translation, JsonArray& messages) {
  Blocks blocks(translation, messages);
  const JsonArray& all = list.get_array();
  for (size_t i = 0; i < all.size(); ++i) blocks.add(all[i], place_in("messages", i));
  blocks.finish();
}

}  // namespace heddle::serve
