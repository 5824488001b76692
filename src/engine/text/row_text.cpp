#include "engine/text/row_text.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "engine/options/model_defaults.h"

namespace heddle {
namespace {

/// Whether the model is a folder with this tokenizer.
bool has_same_tokenizer(const model::ModelFiles& files, const model::FolderText& text) {
  std::error_code error;
  if (!std::filesystem::is_directory(files.path(), error)) return false;
  return model::FolderText(files.path()).tokenizer_source().is_same(text.tokenizer_source());
}

/// The tokenizer's own end token ends an answer, too, as in vLLM: who trains a model may change it
/// there alone.
void add_end_token(RowText& text) {
  const auto found = text.special_tokens.find("eos_token");
  const int32_t end = found == text.special_tokens.end() ? tokenizer::kNoToken
                                                         : text.tokenizer->find(found->second);
  const bool is_new = std::ranges::find(text.end_tokens, end) == text.end_tokens.end();
  if (end != tokenizer::kNoToken && is_new) text.end_tokens.push_back(end);
}

void set_templates(RowText& text, chat_template::ChatTemplates templates) {
  std::array<answers::AnswerStyle, 2> styles;
  for (const bool with_tools : {false, true}) {
    if (templates.has(with_tools)) styles[with_tools] = answer_style_of(templates.pick(with_tools));
  }
  text.styles = std::make_shared<const std::array<answers::AnswerStyle, 2>>(std::move(styles));
  text.chat_templates = std::make_shared<const chat_template::ChatTemplates>(std::move(templates));
}

class TokenizerTexts final : public TokenTexts {
 public:
  explicit TokenizerTexts(std::shared_ptr<const tokenizer::Tokenizer> tokenizer)
      : tokenizer_(std::move(tokenizer)) {}
  std::string_view bytes(int32_t id) const override {
    return has(id) ? tokenizer_->token_bytes(id) : std::string_view();
  }
  bool is_special(int32_t id) const override { return has(id) && tokenizer_->is_control(id); }

 private:
  [[nodiscard]] bool has(int32_t id) const { return id >= 0 && id < tokenizer_->vocab_size(); }

  std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
};

}  // namespace

RowText text_of_model(const model::ModelFiles& files, const std::string& generation_config) {
  RowText text;
  text.tokenizer = std::make_shared<const tokenizer::Tokenizer>(files.tokenizer());
  set_templates(text, files.chat_templates());
  text.special_tokens = files.special_tokens(*text.tokenizer);
  text.end_tokens = end_tokens_of(files, generation_config);
  add_end_token(text);
  return text;
}

answers::AnswerStyle answer_style_of(const chat_template::ChatTemplate& of) {
  answers::AnswerStyle style = answers::style_of_template(of.source());
  style.reasoning.reads_effort = of.facts().reads_effort;
  return style;
}

std::shared_ptr<const TokenTexts> texts_of(std::shared_ptr<const tokenizer::Tokenizer> tokenizer) {
  return std::make_shared<const TokenizerTexts>(std::move(tokenizer));
}

std::shared_ptr<const tokenizer::Tokenizer> OwnTokenizers::of(const model::FolderText& folder) {
  std::erase_if(known_, [](const auto& known) { return known.expired(); });
  model::TokenizerSource source = folder.tokenizer_source();
  for (const auto& weak : known_) {
    const std::shared_ptr<const Own> known = weak.lock();
    if (known->source.is_same(source)) return {known, &known->tokenizer};
  }
  tokenizer::Tokenizer tokenizer = source.read();
  const auto made = std::make_shared<const Own>(Own{std::move(source), std::move(tokenizer)});
  known_.push_back(made);
  return {made, &made->tokenizer};
}

RowText text_of_adapter(const RowText& of_model, const model::ModelFiles& files,
                        const model::FolderText& own, OwnTokenizers& tokenizers) {
  RowText text = of_model;
  if (own.has_tokenizer() && !has_same_tokenizer(files, own)) {
    text.tokenizer = tokenizers.of(own);
  }
  for (const auto& [role, token] : own.special_tokens()) text.special_tokens[role] = token;
  if (text.tokenizer != of_model.tokenizer) add_end_token(text);
  if (auto templates = own.chat_templates(); !templates.empty()) {
    set_templates(text, std::move(templates));
  }
  return text;
}

}  // namespace heddle
