#include "api/forms/openai_base.h"
#include "api/openai_form.h"

namespace heddle::serve {
namespace {

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
    if (event.completion) add_end(row, *event.completion, choice);
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
    add_end(row, completion, choice);
    add_ids(completion, choice);
    return choice;
  }

  std::vector<bool> echoed_ = std::vector<bool>(num_rows());
  std::vector<int64_t> offsets_ = std::vector<int64_t>(num_rows());  // characters that were sent
};

}  // namespace

std::unique_ptr<AnswerForm> completion_form(const Generation& generation, const std::string& id,
                                            const std::string& model) {
  return std::make_unique<CompletionForm>(generation, "cmpl-" + id, model);
}

}  // namespace heddle::serve
