#include "api/openai_form.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "api/token_json.h"

namespace heddle::serve {
namespace {

json stop_reason(const Completion& completion) {
  if (!completion.stop.empty()) return json(completion.stop);
  return completion.stop_token < 0 ? json() : json(completion.stop_token);
}

/// The word of the API: a cancelled answer is one that was cut off.
const char* finish_word(const Completion& completion) {
  return completion.finish_reason == FinishReason::kStop ? "stop" : "length";
}

/// What both routes have in common.
class OpenAiForm : public AnswerForm {
 public:
  OpenAiForm(const Generation& generation, const std::string& id, const std::string& model)
      : generation_(generation),
        offsets_(generation.prompts.size() * static_cast<size_t>(generation.best_of)) {
    head_ = {{"id", id}, {"object", ""}, {"created", std::time(nullptr)}, {"model", model}};
  }

  std::string end(std::span<const Completion> rows) override {
    std::string bytes;
    if (generation_.include_usage) {
      JsonObject chunk = chunk_head();
      chunk["choices"].emplace_array();
      chunk["usage"] = usage(rows);
      bytes = server_sent(chunk);
    }
    return bytes + "data: [DONE]\n\n";
  }

  std::string failure(const ApiError& error) override {
    return "data: " + openai_error_json(error) + "\n\ndata: [DONE]\n\n";
  }
  HttpResponse refusal(const ApiError& error) override { return openai_error(error); }

  std::string whole(std::span<const Completion> rows) override {
    JsonObject answer = head_;
    answer["object"] = object_name();
    JsonArray& choices = answer["choices"].emplace_array();
    for (const size_t row : told_rows(rows)) {
      JsonObject choice = whole_choice(row, rows[row]);
      choice["index"] = choices.size();
      choices.push_back(std::move(choice));
    }
    answer["usage"] = usage(rows);
    answer["system_fingerprint"] = nullptr;
    return files::json_text(answer);
  }

 protected:
  virtual const char* object_name() const = 0;
  virtual const char* chunk_name() const = 0;
  virtual JsonObject whole_choice(size_t row, const Completion& completion) = 0;

  [[nodiscard]] const Request& request(size_t row) const {
    return generation_.prompts[row / static_cast<size_t>(generation_.best_of)];
  }
  [[nodiscard]] TokenNames names_of(const TokenTexts& texts) const {
    return {.texts = texts, .are_ids = generation_.returns_token_names};
  }
  /// Of a token: the engine returns more of them where the prompt's need more.
  [[nodiscard]] size_t num_tops() const { return static_cast<size_t>(generation_.top_logprobs); }
  JsonObject chunk_head() {
    JsonObject chunk = head_;
    chunk["object"] = chunk_name();
    return chunk;
  }
  /// A chunk with one choice.
  std::string chunk(JsonObject choice) {
    JsonObject whole = chunk_head();
    whole["choices"].emplace_array().push_back(std::move(choice));
    if (generation_.include_usage) whole["usage"] = nullptr;
    return server_sent(whole);
  }
  void add_end(const Completion& completion, JsonObject& choice) {
    choice["finish_reason"] = finish_word(completion);
    choice["stop_reason"] = stop_reason(completion);
  }
  /// What vLLM returns in addition.
  void add_ids(const Completion& completion, JsonObject& choice) {
    if (generation_.return_token_ids) {
      choice["prompt_token_ids"] = files::json_array(completion.prompt_token_ids);
      choice["token_ids"] = files::json_array(completion.token_ids);
    }
    if (generation_.prompt_logprobs >= 0) {
      choice["prompt_logprobs"] = prompt_logprobs(prompt_span(completion), *completion.token_texts,
                                                  static_cast<size_t>(generation_.prompt_logprobs));
    }
  }

  Generation generation_;
  std::vector<int64_t> offsets_;  // of each row: characters of its text that were sent

 private:
  /// A prompt of several answers counts once, with what the first of them took from the cache.
  JsonObject usage(std::span<const Completion> rows) const {
    int64_t prompt = 0, cached = 0, answer = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (i % static_cast<size_t>(generation_.best_of) == 0) {
        prompt += rows[i].prompt_tokens;
        cached += rows[i].cached_tokens;
      }
      answer += std::ssize(rows[i].token_ids);
    }
    return {{"prompt_tokens", prompt},
            {"completion_tokens", answer},
            {"total_tokens", prompt + answer},
            {"prompt_tokens_details", JsonObject{{"cached_tokens", cached}}}};
  }

  /// Of each prompt the n answers whose tokens are the most likely, in their order.
  std::vector<size_t> told_rows(std::span<const Completion> rows) const {
    std::vector<size_t> returned;
    const auto each = static_cast<size_t>(generation_.best_of);
    const auto score = [&rows](size_t row) {
      const std::vector<float>& logprobs = rows[row].logprobs;
      const float sum = std::accumulate(logprobs.begin(), logprobs.end(), 0.0f);
      return sum / static_cast<float>(std::max<size_t>(logprobs.size(), 1));
    };
    for (size_t first = 0; first < rows.size(); first += each) {
      std::vector<size_t> samples(each);
      std::iota(samples.begin(), samples.end(), first);
      if (generation_.n < generation_.best_of) {
        std::ranges::stable_sort(samples, std::ranges::greater(), score);
      }
      returned.insert(returned.end(), samples.begin(), samples.begin() + generation_.n);
    }
    return returned;
  }

  JsonObject head_;
};

class ChatForm final : public OpenAiForm {
 public:
  using OpenAiForm::OpenAiForm;

  std::string begin() override {
    std::string bytes;
    for (size_t row = 0; row < offsets_.size(); ++row) {
      bytes += chunk({{"index", row},
                      {"delta", {{"role", "assistant"}, {"content", generation_.echoed}}},
                      {"logprobs", nullptr},
                      {"finish_reason", nullptr}});
    }
    return bytes;
  }

  std::string added(size_t row, const Event& event) override {
    std::string bytes;
    const bool has_tokens = generation_.logprobs && !event.tokens.ids.empty();
    const bool has_ids = generation_.return_token_ids && !event.tokens.ids.empty();
    if (!event.text.empty() || has_tokens || has_ids) {
      JsonObject choice{
          {"index", row}, {"delta", JsonObject{{"content", event.text}}}, {"logprobs", nullptr}};
      if (has_tokens) {
        choice["logprobs"].emplace_object()["content"] =
            chat_logprobs(span_of(event.tokens), names_of(*event.token_texts), num_tops());
      }
      choice["finish_reason"] = nullptr;
      if (has_ids) choice["token_ids"] = files::json_array(event.tokens.ids);
      bytes = chunk(std::move(choice));
    }
    if (event.completion) {
      JsonObject choice{{"index", row}, {"delta", JsonObject()}, {"logprobs", nullptr}};
      add_end(*event.completion, choice);
      bytes += chunk(std::move(choice));
    }
    return bytes;
  }

 private:
  const char* object_name() const override { return "chat.completion"; }
  const char* chunk_name() const override { return "chat.completion.chunk"; }
  JsonObject whole_choice(size_t row, const Completion& completion) override {
    JsonObject choice{
        {"index", row},
        {"message", {{"role", "assistant"}, {"content", generation_.echoed + completion.text}}},
        {"logprobs", nullptr}};
    if (generation_.logprobs) {
      choice["logprobs"].emplace_object()["content"] =
          chat_logprobs(answer_span(completion), names_of(*completion.token_texts), num_tops());
    }
    add_end(completion, choice);
    add_ids(completion, choice);
    return choice;
  }
};

class CompletionForm final : public OpenAiForm {
 public:
  using OpenAiForm::OpenAiForm;

  std::string added(size_t row, const Event& event) override {
    const bool has_tokens = !event.tokens.ids.empty() && request(row).tell_tokens;
    if (event.text.empty() && !has_tokens && !event.completion) return {};
    std::string text = event.text;
    JsonObject choice{
        {"index", row}, {"text", nullptr}, {"logprobs", nullptr}, {"finish_reason", nullptr}};
    if (generation_.echo && !echoed_[row]) {
      echoed_[row] = true;
      text = prompt_text(row, *event.token_texts) + text;
    }
    if (generation_.logprobs && has_tokens) {
      add_completion_logprobs(span_of(event.tokens), names_of(*event.token_texts), num_tops(),
                              offsets_[row], choice["logprobs"]);
    }
    choice["text"] = text;
    if (generation_.return_token_ids) choice["token_ids"] = files::json_array(event.tokens.ids);
    if (event.completion) add_end(*event.completion, choice);
    return chunk(std::move(choice));
  }

 private:
  const char* object_name() const override { return "text_completion"; }
  const char* chunk_name() const override { return "text_completion"; }

  std::string prompt_text(size_t row, const TokenTexts& texts) const {
    if (request(row).text) return *request(row).text;
    std::string text;
    for (const int32_t id : *request(row).token_ids) text += texts.bytes(id);
    return text;
  }

  JsonObject whole_choice(size_t row, const Completion& completion) override {
    JsonObject choice{{"index", row}, {"text", completion.text}, {"logprobs", nullptr}};
    if (generation_.echo) {
      choice["text"] = prompt_text(row, *completion.token_texts) + completion.text;
    }
    if (generation_.logprobs) {
      const TokenNames names = names_of(*completion.token_texts);
      json& lists = choice["logprobs"];
      int64_t offset = 0;
      if (generation_.echo) {
        add_completion_logprobs(prompt_span(completion), names, num_tops(), offset, lists);
      }
      add_completion_logprobs(answer_span(completion), names, num_tops(), offset, lists);
    }
    add_end(completion, choice);
    add_ids(completion, choice);
    return choice;
  }

  std::vector<bool> echoed_ = std::vector<bool>(offsets_.size());
};

}  // namespace

std::unique_ptr<AnswerForm> chat_form(const Generation& generation, const std::string& id,
                                      const std::string& model) {
  return std::make_unique<ChatForm>(generation, "chatcmpl-" + id, model);
}

std::unique_ptr<AnswerForm> completion_form(const Generation& generation, const std::string& id,
                                            const std::string& model) {
  return std::make_unique<CompletionForm>(generation, "cmpl-" + id, model);
}

}  // namespace heddle::serve
