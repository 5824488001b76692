#include "engine/text/prompt_tokens.h"

#include <algorithm>
#include <utility>

#include "heddle/core/error.h"

#include "engine/options/request_check.h"
#include "model/model_text.h"

namespace heddle {

namespace {

/// Text -> tokens, with those that begin and end a text where `adds_special`.
std::vector<int32_t> encoded(const std::string& text, const tokenizer::Tokenizer& tokenizer,
                             bool adds_special) {
  std::vector<int32_t> ids = tokenizer.encode(text, tokenizer::ControlTokens::kParse);
  if (!adds_special) return ids;
  const auto first = tokenizer.begin_tokens(), last = tokenizer.end_tokens();
  ids.insert(ids.begin(), first.begin(), first.end());
  ids.insert(ids.end(), last.begin(), last.end());
  return ids;
}

std::vector<int32_t> all_tokens(const Request& request, const RowText& text,
                                const std::string& model_path, int64_t max_context) {
  const int num_given = int{request.text.has_value()} + int{request.token_ids.has_value()} +
                        int{!request.messages.empty() || !request.messages_json.empty()};
  HEDDLE_CHECK(num_given == 1, "a request has ", num_given,
               " of messages, text and token_ids, expected one");
  check_chat_fields(request);
  if (request.token_ids) return *request.token_ids;
  const tokenizer::Tokenizer& tokenizer = *text.tokenizer;
  if (request.text) {
    return encoded(*request.text, tokenizer, request.add_special_tokens.value_or(true));
  }
  check_has_template(text, model_path);
  return encoded(rendered(request, *text.chat_templates, text.special_tokens, max_context),
                 tokenizer, request.add_special_tokens.value_or(false));
}

std::vector<int32_t> ascending(std::vector<int32_t> ids) {
  std::ranges::sort(ids);
  ids.erase(std::ranges::unique(ids).begin(), ids.end());
  return ids;
}

class TextTokenizer final : public PromptTokenizer {
 public:
  TextTokenizer(const RowText& text, const std::string& model_path, int64_t max_context)
      : text_(text), model_path_(model_path), max_context_(max_context) {}
  std::vector<int32_t> tokenize(const Request& request) const override {
    return prompt_tokens(request, text_, model_path_, max_context_);
  }
  std::string detokenize(std::span<const int32_t> tokens) const override {
    return text_.tokenizer->decode(tokens);
  }
  std::shared_ptr<const TokenTexts> texts() const override { return texts_of(text_.tokenizer); }

 private:
  RowText text_;
  std::string model_path_;
  int64_t max_context_;
};

}  // namespace

void check_has_template(const RowText& text, const std::string& model_path) {
  HEDDLE_CHECK(!text.chat_templates->empty(), model_path,
               ": the model has no chat template; use raw text");
}

std::string rendered(const Request& request, const chat_template::ChatTemplates& templates,
                     const chat_template::SpecialTokens& special_tokens, int64_t max_context) {
  std::vector<model::ChatTurn> turns;
  for (const Message& message : request.messages) turns.push_back({message.role, message.content});
  model::Chat chat{.turns = turns,
                   .messages = request.messages_json.tree("messages_json"),
                   .tools = request.tools_json.tree("tools_json"),
                   .documents = request.documents_json.tree("documents_json"),
                   .kwargs = request.template_kwargs_json.tree("template_kwargs_json"),
                   .add_generation_prompt = request.add_generation_prompt,
                   .continue_final_message = request.continue_final_message};
  return model::render_chat(templates, std::move(chat), special_tokens, max_context);
}

std::vector<int32_t> prompt_tokens(const Request& request, const RowText& text,
                                   const std::string& model_path, int64_t max_context) {
  std::vector<int32_t> tokens = all_tokens(request, text, model_path, max_context);
  const int64_t num_kept = request.truncate_prompt_tokens;
  if (num_kept > 0 && std::ssize(tokens) > num_kept) {
    tokens.erase(tokens.begin(), tokens.end() - num_kept);
  }
  return tokens;
}

RequestTokens request_tokens(const Request& request, const RowText& text,
                             const std::string& model_path, int64_t max_context) {
  RequestTokens tokens{.prompt = prompt_tokens(request, text, model_path, max_context)};
  tokens.stop_tokens = ascending(request.stop_token_ids);
  if (!request.allowed_token_ids.empty()) {
    tokens.allowed =
        std::make_shared<const std::vector<int32_t>>(ascending(request.allowed_token_ids));
  }
  tokens.prediction = text.tokenizer->encode(request.prediction, tokenizer::ControlTokens::kPlain);
  for (const std::string& word : request.bad_words) {
    const std::string bare = word.substr(std::min(word.find_first_not_of(' '), word.size()));
    WordTokens& forms = tokens.bad_words.emplace_back();
    if (bare.empty()) continue;
    forms.plain = text.tokenizer->encode(bare, tokenizer::ControlTokens::kParse);
    forms.spaced = text.tokenizer->encode(" " + bare, tokenizer::ControlTokens::kParse);
  }
  return tokens;
}

std::shared_ptr<const PromptTokenizer> prompt_tokenizer(const RowText& text,
                                                        const std::string& model_path,
                                                        int64_t max_context) {
  return std::make_shared<const TextTokenizer>(text, model_path, max_context);
}

}  // namespace heddle
