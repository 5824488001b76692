#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "heddle/engine/request.h"

#include "answers/answer_style.h"
#include "chat_template/chat_templates.h"
#include "model/source/folder_text.h"
#include "model/source/model_files.h"
#include "tokenizer/tokenizer.h"

namespace heddle {

/// What makes tokens of a row's prompt and text of its answer.
struct RowText {
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
  std::shared_ptr<const chat_template::ChatTemplates> chat_templates;
  // What they say of answers, by the template for conversations without tools and with some.
  std::shared_ptr<const std::array<answers::AnswerStyle, 2>> styles;
  chat_template::SpecialTokens special_tokens;
  std::vector<int32_t> end_tokens;  // that end an answer
};

/// `generation_config`: as in EngineOptions.
[[nodiscard]] RowText text_of_model(const model::ModelFiles& files,
                                    const std::string& generation_config);

/// The texts of the tokenizer's tokens, for users outside of the engine.
[[nodiscard]] std::shared_ptr<const TokenTexts> texts_of(
    std::shared_ptr<const tokenizer::Tokenizer> tokenizer);

/// The tokenizers that adapters bring: those of equal sources are one, as long as any adapter has
/// it. They may have more tokens than the model has rows: ids are checked where a prompt has them.
class OwnTokenizers {
 public:
  /// Throws Error where the folder's cannot be read.
  [[nodiscard]] std::shared_ptr<const tokenizer::Tokenizer> of(const model::FolderText& folder);

 private:
  struct Own {
    model::TokenizerSource source;
    tokenizer::Tokenizer tokenizer;
  };
  std::vector<std::weak_ptr<const Own>> known_;
};

/// What the source of a template says of the answers to it.
[[nodiscard]] answers::AnswerStyle answer_style_of(const chat_template::ChatTemplate& of);

/// The model's, but for what the adapter's folder has of its own: tokenizer, chat templates, tokens
/// with a role. Of a tokenizer of its own the end token ends an answer, too.
[[nodiscard]] RowText text_of_adapter(const RowText& of_model, const model::ModelFiles& files,
                                      const model::FolderText& own, OwnTokenizers& tokenizers);

}  // namespace heddle
