#include "messages/form.h"

#include <algorithm>
#include <utility>

#include "api/answer_parts.h"
#include "api/forms/token_json.h"
#include "files/json_tree.h"

namespace heddle::serve {
namespace {

using Change = PartChange::Kind;

constexpr std::string_view kCallId = "call_", kToolId = "toolu_";

/// "call_1f" -> "toolu_1f"
std::string tool_id(const std::string& id) {
  const size_t prefix = id.starts_with(kCallId) ? kCallId.size() : 0;
  return std::string(kToolId) + id.substr(prefix);
}

/// The object that the arguments of a call are; one that was cut off is empty.
json input_of(const std::string& arguments) {
  try {
    constexpr files::JsonLimits kLimits{.depth = 128};
    const files::JsonTree tree = files::parse_json_text(arguments, kLimits);
    json input;
    input = *tree;  // in memory of its own
    if (input.is_object()) return input;
  } catch (const files::JsonFault&) {
  }
  return JsonObject();
}

class MessagesForm final : public AnswerForm {
 public:
  MessagesForm(MessagesRequest request, const std::string& id, const std::string& model)
      : request_(std::move(request)),
        signature_(id.substr(id.find('_') + 1)),
        parts_(request_.generation) {
    head_ = {{"id", id},
             {"type", "message"},
             {"role", "assistant"},
             {"model", model},
             {"content", JsonArray()},
             {"stop_reason", nullptr},
             {"stop_sequence", nullptr}};
  }

  std::string begin() override { return open(); }
  std::string ping() override { return event("ping", {}); }

  std::string added(size_t, const Event& event) override {
    prompt_tokens_ = event.prompt_tokens;
    cached_tokens_ = event.cached_tokens;
    std::string bytes = open();
    for (const PartChange& change : parts_.push(event.text)) bytes += told(change);
    if (!event.completion) return bytes;
    for (const PartChange& change : parts_.finish()) bytes += told(change);
    return bytes;
  }

  std::string end(std::span<const Completion> rows) override {
    const Completion& answer = rows.front();
    return event("message_delta", {{"delta", stop_of(answer)}, {"usage", usage_of(answer)}}) +
           event("message_stop", {});
  }

  std::string failure(const ApiError& error) override {
    return "event: error\ndata: " + anthropic_error_json(error) + "\n\n";
  }
  HttpResponse refusal(const ApiError& error) override { return anthropic_error(error); }

  std::string whole(std::span<const Completion> rows) override {
    const Completion& answer = rows.front();
    (void)parts_.push(answer.text);
    (void)parts_.finish();
    JsonObject message = head_;
    JsonArray& content = message["content"].get_array();
    for (const AnswerPart& part : parts_.parts()) {
      JsonObject block = block_of(part);
      if (part.kind == PartKind::kText) block["text"] = part.text;
      if (part.kind == PartKind::kCall) block["input"] = input_of(part.text);
      if (part.kind == PartKind::kThoughts) {
        block["thinking"] = request_.hides_thoughts ? std::string() : part.text;
        block["signature"] = signature_;
      }
      content.push_back(std::move(block));
    }
    for (auto& field : stop_of(answer)) message[field.key()] = std::move(field.value());
    message["usage"] = usage_of(answer);
    return files::json_text(message);
  }

 private:
  /// "event: message_stop\ndata: {...}\n\n"
  static std::string event(const char* type, JsonObject fields) {
    JsonObject data{{"type", type}};
    for (auto& field : fields) data[field.key()] = std::move(field.value());
    return std::string("event: ") + type + "\n" + server_sent(data);
  }

  std::string open() {
    if (std::exchange(is_open_, true)) return {};
    JsonObject message = head_;
    message["usage"] = usage(prompt_tokens_, cached_tokens_, 0);
    return event("message_start", {{"message", std::move(message)}});
  }

  /// A block as it begins.
  static JsonObject block_of(const AnswerPart& part) {
    switch (part.kind) {
      case PartKind::kText: return {{"type", "text"}, {"text", ""}};
      case PartKind::kThoughts: return {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}};
      case PartKind::kCall: break;
    }
    return {{"type", "tool_use"},
            {"id", tool_id(part.id)},
            {"name", part.name},
            {"input", JsonObject()}};
  }

  /// What the stream says of a change.
  std::string told(const PartChange& change) {
    const AnswerPart& part = parts_.parts()[change.part];
    const JsonObject place{{"index", change.part}};
    const auto delta = [&place](JsonObject what) {
      JsonObject fields = place;
      fields["delta"] = std::move(what);
      return event("content_block_delta", std::move(fields));
    };
    const bool are_thoughts = part.kind == PartKind::kThoughts;
    switch (change.kind) {
      case Change::kBegins: {
        JsonObject fields = place;
        fields["content_block"] = block_of(part);
        return event("content_block_start", std::move(fields));
      }
      case Change::kGrows:
        if (part.kind == PartKind::kText) {
          return delta({{"type", "text_delta"}, {"text", change.added}});
        }
        if (part.kind == PartKind::kCall) {
          return delta({{"type", "input_json_delta"}, {"partial_json", change.added}});
        }
        if (request_.hides_thoughts) return {};
        return delta({{"type", "thinking_delta"}, {"thinking", change.added}});
      case Change::kEnds: break;
    }
    std::string bytes;
    if (are_thoughts) bytes = delta({{"type", "signature_delta"}, {"signature", signature_}});
    return bytes + event("content_block_stop", place);
  }

  [[nodiscard]] JsonObject stop_of(const Completion& answer) const {
    const bool has_stopped = answer.finish_reason == FinishReason::kStop;
    const bool was_long =
        std::ssize(answer.token_ids) >= request_.generation.prompts.front().max_tokens;
    const char* reason = "end_turn";
    if (!has_stopped) {
      reason = was_long || answer.finish_reason != FinishReason::kLength
                   ? "max_tokens"
                   : "model_context_window_exceeded";
    } else if (!answer.stop.empty()) {
      reason = "stop_sequence";
    } else if (parts_.has_calls()) {
      reason = "tool_use";
    }
    JsonObject end{{"stop_reason", reason},
                   {"stop_sequence", answer.stop.empty() ? json() : json(answer.stop)}};
    if (!answer.adapter_digest.empty()) end["adapter_digest"] = answer.adapter_digest;
    add_switches(answer, end);
    return end;
  }

  /// What the cache had is counted apart, as in Anthropic's API.
  static JsonObject usage(int64_t prompt, int64_t cached, int64_t answer) {
    return {{"input_tokens", prompt - cached},
            {"cache_creation_input_tokens", 0},
            {"cache_read_input_tokens", cached},
            {"output_tokens", answer}};
  }

  [[nodiscard]] JsonObject usage_of(const Completion& answer) const {
    JsonObject all =
        usage(answer.prompt_tokens, answer.cached_tokens, std::ssize(answer.token_ids));
    all["output_tokens_details"] =
        JsonObject{{"thinking_tokens", count_thoughts(request_.generation, answer)}};
    return all;
  }

  const MessagesRequest request_;
  const std::string signature_;  // of thoughts; they have no other than the message's number
  JsonObject head_;
  AnswerParts parts_;
  int64_t prompt_tokens_ = 0, cached_tokens_ = 0;
  bool is_open_ = false;
};

}  // namespace

std::unique_ptr<AnswerForm> messages_form(MessagesRequest request, const std::string& id,
                                          const std::string& model) {
  return std::make_unique<MessagesForm>(std::move(request), id, model);
}

}  // namespace heddle::serve
