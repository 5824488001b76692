#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "answers/answer_parser.h"
#include "api/forms/openai_base.h"
#include "api/openai_form.h"

namespace heddle::serve {
namespace {

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

void add_reasoning(const std::string& text, JsonObject& to) {
  to["reasoning_content"] = text;  // the name that DeepSeek began with
  to["reasoning"] = text;
}

JsonObject function_call(const std::string& name, const std::string& arguments) {
  return {{"name", name}, {"arguments", arguments}};
}

class ChatForm final : public OpenAiForm {
 public:
  ChatForm(const Generation& generation, const std::string& id, const std::string& model)
      : OpenAiForm(generation, id, model), rows_(num_rows()) {
    if (!generation.parses()) return;
    for (Row& row : rows_) row.parser.emplace(generation.style, generation.parser);
  }

  std::string begin() override {
    std::string bytes;
    for (size_t row = 0; row < num_rows(); ++row) {
      bytes += chunk({{"index", row},
                      {"delta", {{"role", "assistant"}, {"content", generation_.echoed}}},
                      {"logprobs", nullptr},
                      {"finish_reason", nullptr}});
    }
    return bytes;
  }

  std::string added(size_t row, const Event& event) override {
    std::vector<JsonObject> deltas;
    add_deltas(rows_[row], event, deltas);
    const bool has_tokens = generation_.logprobs && !event.tokens.ids.empty();
    const bool has_ids = generation_.return_token_ids && !event.tokens.ids.empty();
    if (deltas.empty() && (has_tokens || has_ids)) deltas.push_back({{"content", ""}});
    std::string bytes;
    for (size_t i = 0; i < deltas.size(); ++i) {
      JsonObject choice{{"index", row}, {"delta", std::move(deltas[i])}, {"logprobs", nullptr}};
      if (has_tokens && i == 0) {
        choice["logprobs"].emplace_object()["content"] =
            chat_logprobs(span_of(event.tokens), names_of(*event.token_texts), num_tops());
      }
      choice["finish_reason"] = nullptr;
      if (has_ids && i == 0) choice["token_ids"] = files::json_array(event.tokens.ids);
      bytes += chunk(std::move(choice));
    }
    if (event.completion) {
      JsonObject choice{{"index", row}, {"delta", JsonObject()}, {"logprobs", nullptr}};
      const bool has_calls = rows_[row].parser && rows_[row].parser->num_calls() > 0;
      add_chat_end(*event.completion, has_calls, choice);
      bytes += chunk(std::move(choice));
    }
    return bytes;
  }

 private:
  /// What a stream has of one answer.
  struct Row {
    std::optional<answers::AnswerParser> parser{};  // absent: all is text
    std::string reasoning{};                        // that is held until it ends
    /// Space at the beginning of the text, which a message with calls and no other text leaves out.
    std::string space{};
    bool has_text = false;
  };

  const char* object_name() const override { return "chat.completion"; }
  const char* chunk_name() const override { return "chat.completion.chunk"; }

  void add_deltas(Row& row, const Event& event, std::vector<JsonObject>& deltas) {
    if (!row.parser) {
      if (!event.text.empty()) deltas.push_back({{"content", event.text}});
      return;
    }
    add_parts(row, row.parser->push(event.text), deltas);
    if (!event.completion) return;
    add_parts(row, row.parser->finish(), deltas);
    send_reasoning(row, deltas);
    if (row.parser->num_calls() == 0 && !row.space.empty()) {
      deltas.push_back({{"content", std::exchange(row.space, {})}});
    }
  }

  void add_parts(Row& row, const answers::AnswerDelta& delta, std::vector<JsonObject>& deltas) {
    if (!generation_.hides_reasoning) row.reasoning += delta.reasoning;
    const bool has_ended = !delta.text.empty() || !delta.calls.empty();
    if (has_ended || !generation_.holds_reasoning) send_reasoning(row, deltas);
    if (!delta.text.empty()) add_text(row, delta.text, deltas);
    for (const answers::CallDelta& call : delta.calls) add_call(call, deltas);
  }

  static void send_reasoning(Row& row, std::vector<JsonObject>& deltas) {
    if (row.reasoning.empty()) return;
    add_reasoning(std::exchange(row.reasoning, {}), deltas.emplace_back());
  }

  static void add_text(Row& row, const std::string& text, std::vector<JsonObject>& deltas) {
    row.has_text = row.has_text || !is_blank(text);
    row.space += text;
    if (row.has_text) deltas.push_back({{"content", std::exchange(row.space, {})}});
  }

  /// Its name comes first, then its arguments in pieces.
  static void add_call(const answers::CallDelta& call, std::vector<JsonObject>& deltas) {
    const auto add = [&](JsonObject piece) {
      deltas.emplace_back()["tool_calls"].emplace_array().push_back(std::move(piece));
    };
    if (!call.id.empty()) {
      add({{"index", call.index},
           {"id", call.id},
           {"type", "function"},
           {"function", function_call(call.name, "")}});
    }
    if (!call.arguments.empty()) {
      add({{"index", call.index}, {"function", JsonObject{{"arguments", call.arguments}}}});
    }
  }

  static void add_chat_end(const Completion& completion, bool has_calls, JsonObject& choice) {
    add_end(completion, choice);
    const bool is_whole = completion.finish_reason == FinishReason::kStop;
    if (has_calls && is_whole) choice["finish_reason"] = "tool_calls";
  }

  [[nodiscard]] answers::ParsedAnswer parsed(const std::string& text) const {
    if (!generation_.parses()) return {.text = text};
    return answers::parse_answer(generation_.style, generation_.parser, text);
  }

  JsonObject message_of(const answers::ParsedAnswer& answer) const {
    JsonObject message{{"role", "assistant"}, {"content", nullptr}};
    const bool has_calls = !answer.calls.empty();
    const bool has_others = has_calls || !answer.reasoning.empty();
    const bool is_left_out = has_calls ? is_blank(answer.text) : answer.text.empty();
    const std::string text = generation_.echoed + (is_left_out ? "" : answer.text);
    if (!text.empty() || !has_others) message["content"] = text;
    if (!answer.reasoning.empty() && !generation_.hides_reasoning) {
      add_reasoning(answer.reasoning, message);
    }
    if (!has_calls) return message;
    JsonArray& calls = message["tool_calls"].emplace_array();
    for (const auto& call : answer.calls) {
      calls.push_back(JsonObject{{"id", call.id},
                                 {"type", "function"},
                                 {"function", function_call(call.name, call.arguments)}});
    }
    return message;
  }

  JsonObject whole_choice(size_t row, const Completion& completion) override {
    const answers::ParsedAnswer answer = parsed(completion.text);
    JsonObject choice{{"index", row}, {"message", message_of(answer)}, {"logprobs", nullptr}};
    if (generation_.logprobs) {
      choice["logprobs"].emplace_object()["content"] =
          chat_logprobs(answer_span(completion), names_of(*completion.token_texts), num_tops());
    }
    add_chat_end(completion, !answer.calls.empty(), choice);
    add_ids(completion, choice);
    return choice;
  }

  std::vector<Row> rows_;
};

}  // namespace

std::unique_ptr<AnswerForm> chat_form(const Generation& generation, const std::string& id,
                                      const std::string& model) {
  return std::make_unique<ChatForm>(generation, "chatcmpl-" + id, model);
}

}  // namespace heddle::serve
