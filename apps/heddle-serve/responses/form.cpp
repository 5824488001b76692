#include "responses/form.h"

#include <algorithm>
#include <ctime>
#include <optional>
#include <utility>

#include "api/answer_parts.h"
#include "api/forms/token_json.h"

namespace heddle::serve {
namespace {

using Change = PartChange::Kind;

constexpr const char* kInProgress = "in_progress";
constexpr const char* kCompleted = "completed";
constexpr const char* kIncomplete = "incomplete";

class ResponsesForm final : public AnswerForm {
 public:
  ResponsesForm(ResponsesRequest request, const std::string& id, const std::string& model,
                OnResponse on_end)
      : request_(std::move(request)),
        on_end_(std::move(on_end)),
        hex_(id.substr(id.find('_') + 1)),
        parts_(request_.generation) {
    head_ = {{"id", id},
             {"object", "response"},
             {"created_at", std::time(nullptr)},
             {"model", model},
             {"status", kInProgress},
             {"background", false},
             {"completed_at", nullptr},
             {"error", nullptr},
             {"incomplete_details", nullptr}};
    for (const auto& field : request_.echoed) head_[field.key()] = field.value();
    head_["output"].emplace_array();
    head_["usage"] = nullptr;
  }

  std::string begin() override { return open(); }

  std::string added(size_t, const Event& event) override {
    std::string bytes = open();
    if (has_logprobs() && !event.tokens.ids.empty()) {
      add_logprobs(span_of(event.tokens), *event.token_texts);
    }
    for (const PartChange& change : parts_.push(event.text)) bytes += told(change);
    if (!event.completion) return bytes;
    has_ended_early_ = event.completion->finish_reason != FinishReason::kStop;
    // OpenAI's clients look for a message: an answer without a token has an empty one.
    for (const PartChange& change : parts_.finish_with_part()) bytes += told(change);
    return bytes;
  }

  std::string end(std::span<const Completion> rows) override {
    const JsonObject whole = whole_response(rows.front());
    finish(files::json_text(whole));
    return event(has_ended_early_ ? "response.incomplete" : "response.completed",
                 {{"response", whole}});
  }

  std::string failure(const ApiError& error) override {
    const char* const code = error.status() == 429 ? "rate_limit_exceeded" : "server_error";
    std::string bytes =
        open() + event("error", {{"code", code}, {"message", error.what()}, {"param", nullptr}});
    JsonObject failed = head_;
    failed["status"] = "failed";
    failed["error"] = {{"code", code}, {"message", error.what()}};
    failed["output"] = output();
    return bytes + event("response.failed", {{"response", std::move(failed)}});
  }

  HttpResponse refusal(const ApiError& error) override { return openai_error(error); }

  std::string whole(std::span<const Completion> rows) override {
    const Completion& answer = rows.front();
    has_ended_early_ = answer.finish_reason != FinishReason::kStop;
    if (has_logprobs() && request_.generation.parses()) {
      add_by_token(answer);
    } else if (has_logprobs()) {
      add_logprobs(answer_span(answer), *answer.token_texts);
    }
    for (const PartChange& change : parts_.push(answer.text)) (void)told(change);
    for (const PartChange& change : parts_.finish_with_part()) (void)told(change);
    std::string text = files::json_text(whole_response(answer));
    finish(text);
    return text;
  }

 private:
  [[nodiscard]] bool has_logprobs() const { return request_.generation.logprobs; }

  /// "event: response.created\ndata: {...}\n\n"
  std::string event(const char* type, JsonObject fields) {
    JsonObject data{{"type", type}, {"sequence_number", sequence_number_++}};
    for (auto& field : fields) data[field.key()] = std::move(field.value());
    return std::string("event: ") + type + "\n" + server_sent(data);
  }

  /// What comes before anything of the answer.
  std::string open() {
    if (std::exchange(is_open_, true)) return {};
    const std::string bytes = event("response.created", {{"response", head_}});
    return bytes + event("response.in_progress", {{"response", head_}});
  }

  /// Log-probabilities of tokens wait for the text that comes of them.
  void add_logprobs(const TokenSpan& tokens, const TokenTexts& texts) {
    const TokenNames names{.texts = texts, .are_ids = request_.generation.returns_token_names};
    const auto num_tops = static_cast<size_t>(request_.generation.top_logprobs);
    JsonArray entries = chat_logprobs(tokens, names, num_tops);
    for (size_t i = 0; i < entries.size(); ++i) {
      waiting_.push_back({std::string(texts.bytes(tokens.ids[i])), std::move(entries[i])});
    }
  }

  /// A whole answer with several parts: which of them a token belongs to shows where it is pushed.
  void add_by_token(const Completion& answer) {
    const TokenSpan all = answer_span(answer);
    const size_t tops = all.ids.empty() ? 0 : all.top_ids.size() / all.ids.size();
    AnswerParts parts(request_.generation);
    const auto take = [&](const std::vector<PartChange>& changes) {
      for (const PartChange& change : changes) {
        logprobs_.resize(std::max(logprobs_.size(), change.part + 1));
        const bool is_text = parts.parts()[change.part].kind == PartKind::kText;
        if (is_text && change.kind == Change::kGrows) (void)take_logprobs(change);
      }
    };
    for (size_t i = 0; i < all.ids.size(); ++i) {
      add_logprobs({all.ids.subspan(i, 1), all.logprobs.subspan(i, 1),
                    all.top_ids.subspan(i * tops, tops), all.top_logprobs.subspan(i * tops, tops)},
                   *answer.token_texts);
      take(parts.push(answer.token_texts->bytes(all.ids[i])));
    }
    take(parts.finish());
    waiting_.clear();
  }

  /// Those of the tokens that a growing text comes of, which its part gets, too. Where there are
  /// marks around texts, the text is the last that they have.
  JsonArray take_logprobs(const PartChange& change) {
    JsonArray& all = logprobs_[change.part];
    size_t begin = 0, end = std::string::npos;
    if (request_.generation.parses()) {
      const size_t place = all.empty() ? last_place_of(change.added) : 0;
      if (place != std::string::npos) begin = place, end = place + num_bytes(change.added);
    }
    JsonArray tokens;
    size_t at = 0, num_taken = 0;
    for (Waiting& token : waiting_) {
      if (at >= end) break;
      at += token.bytes.size();
      ++num_taken;
      if (at > begin || token.bytes.empty()) tokens.push_back(std::move(token.entry));
    }
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(num_taken));
    all.insert(all.end(), tokens.begin(), tokens.end());
    return tokens;
  }

  /// Of the text in the bytes of the tokens that wait.
  [[nodiscard]] size_t last_place_of(const std::string& text) const {
    std::string bytes;
    for (const Waiting& token : waiting_) bytes += token.bytes;
    return bytes.rfind(text);
  }

  /// Of tokens whose text it is: what is no UTF-8 has become U+FFFD, of three bytes.
  static size_t num_bytes(std::string_view text) {
    constexpr std::string_view kReplaced = "\xEF\xBF\xBD";
    size_t count = text.size();
    for (size_t at = text.find(kReplaced); at != std::string_view::npos;
         at = text.find(kReplaced, at + kReplaced.size())) {
      count -= kReplaced.size() - 1;
    }
    return count;
  }

  std::string id_of(size_t i, const AnswerPart& part) const {
    switch (part.kind) {
      case PartKind::kThoughts: return "rs_" + hex_ + std::to_string(i);
      case PartKind::kText: return "msg_" + hex_ + std::to_string(i);
      case PartKind::kCall: return "fc_" + hex_ + std::to_string(i);
    }
    return {};
  }

  /// What a text or thoughts are inside of their item.
  JsonObject content_of(size_t i, const AnswerPart& part) const {
    if (part.kind == PartKind::kThoughts) return {{"type", "reasoning_text"}, {"text", part.text}};
    return {{"type", "output_text"},
            {"text", part.text},
            {"annotations", JsonArray()},
            {"logprobs", logprobs_[i]}};
  }

  JsonObject item_of(size_t i, const char* status) const {
    const AnswerPart& part = parts_.parts()[i];
    const bool has_begun = std::string_view(status) != kInProgress;
    JsonObject item{{"id", id_of(i, part)}, {"type", ""}, {"status", status}};
    if (part.kind == PartKind::kCall) {
      item["type"] = "function_call";
      item["call_id"] = part.id;
      item["name"] = part.name;
      item["arguments"] = has_begun ? part.text : std::string();
      return item;
    }
    item["type"] = part.kind == PartKind::kText ? "message" : "reasoning";
    if (part.kind == PartKind::kText) {
      item["role"] = "assistant";
    } else {
      item["summary"].emplace_array();
    }
    JsonArray& content = item["content"].emplace_array();
    if (has_begun) content.push_back(content_of(i, part));
    return item;
  }

  /// What the stream says of a change.
  std::string told(const PartChange& change) {
    const size_t i = change.part;
    const AnswerPart& part = parts_.parts()[i];
    const JsonObject place{{"item_id", id_of(i, part)}, {"output_index", i}};
    switch (change.kind) {
      case Change::kBegins: return told_begin(i, part, place);
      case Change::kGrows: return told_growth(change, part, place);
      case Change::kEnds: return told_end(i, part, place);
    }
    return {};
  }

  std::string told_begin(size_t i, const AnswerPart& part, const JsonObject& place) {
    while (logprobs_.size() <= i) logprobs_.emplace_back();
    std::string bytes = event("response.output_item.added",
                              {{"output_index", i}, {"item", item_of(i, kInProgress)}});
    if (part.kind == PartKind::kCall) return bytes;
    JsonObject fields = place;
    fields["content_index"] = 0;
    fields["part"] = content_of(i, {.kind = part.kind});
    return bytes + event("response.content_part.added", std::move(fields));
  }

  std::string told_growth(const PartChange& change, const AnswerPart& part,
                          const JsonObject& place) {
    JsonObject fields = place;
    fields["delta"] = change.added;
    if (part.kind == PartKind::kCall) {
      return event("response.function_call_arguments.delta", std::move(fields));
    }
    fields["content_index"] = 0;
    if (part.kind == PartKind::kThoughts) {
      return event("response.reasoning_text.delta", std::move(fields));
    }
    fields["logprobs"] = take_logprobs(change);
    return event("response.output_text.delta", std::move(fields));
  }

  std::string told_end(size_t i, const AnswerPart& part, const JsonObject& place) {
    // Tokens without a text of their own: what a stop string has cut off.
    if (!request_.generation.parses()) (void)take_logprobs({.kind = Change::kGrows, .part = i});
    std::string bytes;
    JsonObject fields = place;
    if (part.kind == PartKind::kCall) {
      fields["name"] = part.name;
      fields["arguments"] = part.text;
      bytes = event("response.function_call_arguments.done", std::move(fields));
    } else {
      fields["content_index"] = 0;
      JsonObject text = fields;
      text["text"] = part.text;
      if (part.kind == PartKind::kText) text["logprobs"] = logprobs_[i];
      bytes = event(part.kind == PartKind::kText ? "response.output_text.done"
                                                 : "response.reasoning_text.done",
                    std::move(text));
      fields["part"] = content_of(i, part);
      bytes += event("response.content_part.done", std::move(fields));
    }
    return bytes + event("response.output_item.done",
                         {{"output_index", i}, {"item", item_of(i, status_of(i))}});
  }

  /// Only the last item of an answer that was cut off is incomplete.
  [[nodiscard]] const char* status_of(size_t i) const {
    return has_ended_early_ && i + 1 == parts_.parts().size() ? kIncomplete : kCompleted;
  }

  JsonArray output() const {
    JsonArray items;
    for (size_t i = 0; i < parts_.parts().size(); ++i) items.push_back(item_of(i, status_of(i)));
    return items;
  }

  JsonObject whole_response(const Completion& answer) const {
    JsonObject whole = head_;
    const auto tokens = std::ssize(answer.token_ids);
    whole["status"] = has_ended_early_ ? kIncomplete : kCompleted;
    whole["completed_at"] = has_ended_early_ ? json() : json(std::time(nullptr));
    if (has_ended_early_) whole["incomplete_details"] = {{"reason", "max_output_tokens"}};
    whole["output"] = output();
    if (!answer.adapter_digest.empty()) whole["adapter_digest"] = answer.adapter_digest;
    JsonObject details{{"reasoning_tokens", count_thoughts(request_.generation, answer)}};
    if (request_.generation.has_prediction) add_prediction(answer.prediction, details);
    whole["usage"] = {{"input_tokens", answer.prompt_tokens},
                      {"input_tokens_details",
                       {{"cached_tokens", answer.cached_tokens}, {"cache_write_tokens", 0}}},
                      {"output_tokens", tokens},
                      {"output_tokens_details", std::move(details)},
                      {"total_tokens", answer.prompt_tokens + tokens}};
    add_switches(answer, whole);
    return whole;
  }

  /// The answer as later requests have it in their conversation.
  std::string message() const {
    JsonObject message{{"role", "assistant"}, {"content", joined(parts_.parts(), PartKind::kText)}};
    std::string thoughts = joined(parts_.parts(), PartKind::kThoughts);
    if (!thoughts.empty()) message["reasoning_content"] = std::move(thoughts);
    if (parts_.has_calls()) message["tool_calls"] = calls_of(parts_.parts());
    return files::json_text(message);
  }

  void finish(const std::string& response) const {
    if (on_end_) on_end_(response, message());
  }

  const ResponsesRequest request_;
  const OnResponse on_end_;
  const std::string hex_;  // of the ids
  JsonObject head_;        // what all states of the response have
  AnswerParts parts_;
  std::vector<JsonArray> logprobs_;  // of each part's tokens
  struct Waiting {
    std::string bytes;
    json entry;
  };
  std::vector<Waiting> waiting_;  // log-probabilities of tokens whose text has not come
  int64_t sequence_number_ = 0;
  bool is_open_ = false, has_ended_early_ = false;
};

}  // namespace

std::unique_ptr<AnswerForm> responses_form(ResponsesRequest request, const std::string& id,
                                           const std::string& model, OnResponse on_end) {
  return std::make_unique<ResponsesForm>(std::move(request), id, model, std::move(on_end));
}

}  // namespace heddle::serve
