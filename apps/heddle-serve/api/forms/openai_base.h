#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "api/answer_form.h"
#include "api/forms/token_json.h"

namespace heddle::serve {

/// What chat and completions have in common.
class OpenAiForm : public AnswerForm {
 public:
  OpenAiForm(const Generation& generation, const std::string& id, const std::string& model);

  std::string end(std::span<const Completion> rows) override;
  std::string failure(const ApiError& error) override;
  HttpResponse refusal(const ApiError& error) override;
  std::string whole(std::span<const Completion> rows) override;

 protected:
  virtual const char* object_name() const = 0;
  virtual const char* chunk_name() const = 0;
  virtual JsonObject whole_choice(size_t row, const Completion& completion) = 0;

  [[nodiscard]] size_t prompt_of(size_t row) const {
    return row / static_cast<size_t>(generation_.best_of);
  }
  [[nodiscard]] const Request& request(size_t row) const {
    return generation_.prompts[prompt_of(row)];
  }
  [[nodiscard]] size_t num_rows() const { return num_rows_; }
  [[nodiscard]] TokenNames names_of(const TokenTexts& texts) const {
    return {.texts = texts, .are_ids = generation_.returns_token_names};
  }
  /// Of a token: the engine returns more of them where the prompt's need more.
  [[nodiscard]] size_t num_tops() const { return static_cast<size_t>(generation_.top_logprobs); }
  /// A chunk with one choice.
  std::string chunk(JsonObject choice) const;
  void add_end(size_t row, const Completion& completion, JsonObject& choice) const;
  /// What vLLM returns in addition.
  void add_ids(const Completion& completion, JsonObject& choice) const;

  Generation generation_;

 private:
  [[nodiscard]] JsonObject chunk_head() const;
  [[nodiscard]] json fingerprint(std::span<const Completion> rows) const;
  [[nodiscard]] JsonObject usage(std::span<const Completion> rows) const;
  [[nodiscard]] std::vector<size_t> told_rows(std::span<const Completion> rows) const;

  size_t num_rows_;
  JsonObject head_;
};

}  // namespace heddle::serve
