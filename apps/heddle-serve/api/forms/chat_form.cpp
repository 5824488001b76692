#include <string>
#include <utility>
#include <vector>

#include "api/answer_parts.h"
#include "api/forms/openai_base.h"
#include "api/openai_form.h"

namespace heddle::serve {
namespace {

void add_reasoning(const std::string& text, JsonObject& to) {
  to["reasoning_content"] = text;  // the name that DeepSeek began with
  to["reasoning"] = text;
}

class ChatForm final : public OpenAiForm {
 public:
  ChatForm(const Generation& generation, const std::string& id, const std::string& model)
      : OpenAiForm(generation, id, model) {
    rows_.reserve(num_rows());
    for (size_t row = 0; row < num_rows(); ++row) {
      rows_.push_back({AnswerParts(generation, prompt_of(row))});
    }
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
      add_chat_end(row, *event.completion, rows_[row].parts.has_calls(), choice);
      bytes += chunk(std::move(choice));
    }
    return bytes;
  }

 private:
  /// What a stream has of one answer.
  struct Row {
    AnswerParts parts;
    size_t num_calls = 0;
  };

  const char* object_name() const override { return "chat.completion"; }
  const char* chunk_name() const override { return "chat.completion.chunk"; }

  void add_deltas(Row& row, const Event& event, std::vector<JsonObject>& deltas) {
    for (const PartChange& change : row.parts.push(event.text)) add_change(row, change, deltas);
    if (!event.completion) return;
    for (const PartChange& change : row.parts.finish()) add_change(row, change, deltas);
  }

  void add_change(Row& row, const PartChange& change, std::vector<JsonObject>& deltas) {
    const AnswerPart& part = row.parts.parts()[change.part];
    if (part.kind == PartKind::kCall) return add_call(row, part, change, deltas);
    const bool grows = change.kind == PartChange::Kind::kGrows;
    if (part.kind == PartKind::kText) {
      if (grows) deltas.push_back({{"content", change.added}});
    } else if (!generation_.hides_reasoning) {
      const bool ends = change.kind == PartChange::Kind::kEnds;
      if (generation_.holds_reasoning ? ends : grows) {
        add_reasoning(generation_.holds_reasoning ? part.text : change.added,
                      deltas.emplace_back());
      }
    }
  }

  /// Its name comes first, then its arguments in pieces.
  static void add_call(Row& row, const AnswerPart& part, const PartChange& change,
                       std::vector<JsonObject>& deltas) {
    const auto add = [&](JsonObject piece) {
      deltas.emplace_back()["tool_calls"].emplace_array().push_back(std::move(piece));
    };
    if (change.kind == PartChange::Kind::kBegins) {
      add({{"index", row.num_calls++},
           {"id", part.id},
           {"type", "function"},
           {"function", {{"name", part.name}, {"arguments", ""}}}});
    } else if (change.kind == PartChange::Kind::kGrows) {
      add({{"index", row.num_calls - 1}, {"function", JsonObject{{"arguments", change.added}}}});
    }
  }

  void add_chat_end(size_t row, const Completion& completion, bool has_calls,
                    JsonObject& choice) const {
    add_end(row, completion, choice);
    const bool is_whole = completion.finish_reason == FinishReason::kStop;
    if (has_calls && is_whole) choice["finish_reason"] = "tool_calls";
  }

  JsonObject message_of(const AnswerParts& answer) const {
    JsonObject message{{"role", "assistant"}, {"content", nullptr}};
    const std::string text = generation_.echoed + joined(answer.parts(), PartKind::kText);
    const std::string thoughts = joined(answer.parts(), PartKind::kThoughts);
    const bool has_others = answer.has_calls() || !thoughts.empty();
    if (!text.empty() || !has_others) message["content"] = text;
    if (!thoughts.empty() && !generation_.hides_reasoning) add_reasoning(thoughts, message);
    if (answer.has_calls()) message["tool_calls"] = calls_of(answer.parts());
    return message;
  }

  JsonObject whole_choice(size_t row, const Completion& completion) override {
    AnswerParts answer(generation_, prompt_of(row));
    (void)answer.push(completion.text);
    (void)answer.finish();
    JsonObject choice{{"index", row}, {"message", message_of(answer)}, {"logprobs", nullptr}};
    const bool has_failed = completion.finish_reason == FinishReason::kError;
    if (generation_.logprobs && !has_failed) {
      choice["logprobs"].emplace_object()["content"] =
          chat_logprobs(answer_span(completion), names_of(*completion.token_texts), num_tops());
    }
    add_chat_end(row, completion, answer.has_calls(), choice);
    if (!has_failed) add_ids(completion, choice);
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
