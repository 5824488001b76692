#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "heddle/engine/request.h"

#include "engine/text/row_text.h"

namespace heddle {

/// The tokens of a request's prompt. `model_path`: for messages; `max_context`: a rendered template
/// may not be much longer. Throws Error where the request has no prompt, or more than one.
[[nodiscard]] std::vector<int32_t> prompt_tokens(const Request& request, const RowText& text,
                                                 const std::string& model_path,
                                                 int64_t max_context);

/// A word at the beginning of a text, and after a space.
struct WordTokens {
  std::vector<int32_t> plain, spaced;
};

/// All that the tokenizer makes of a request.
struct RequestTokens {
  std::vector<int32_t> prompt{};
  std::vector<WordTokens> bad_words{};  // of a word of spaces alone: none
  // What may be drawn and what ends the answer, ascending, each once. Rows of one request have one
  // list of what may be drawn; null: all.
  std::shared_ptr<const std::vector<int32_t>> allowed{};
  std::vector<int32_t> stop_tokens{};
  std::vector<int32_t> prediction{};  // tokens of Request::prediction
};

/// Takes little time where the prompt is tokens, and there are no bad_words and no long lists.
/// Throws as prompt_tokens.
[[nodiscard]] RequestTokens request_tokens(const Request& request, const RowText& text,
                                           const std::string& model_path, int64_t max_context);

/// The tokenizer for those outside of the engine.
[[nodiscard]] std::shared_ptr<const PromptTokenizer> prompt_tokenizer(const RowText& text,
                                                                      const std::string& model_path,
                                                                      int64_t max_context);

/// Throws Error where the model has no template for conversations.
void check_has_template(const RowText& text, const std::string& model_path);

/// The text that the template makes of the request's conversation. Throws Error where it cannot.
[[nodiscard]] std::string rendered(const Request& request,
                                   const chat_template::ChatTemplates& templates,
                                   const chat_template::SpecialTokens& special_tokens,
                                   int64_t max_context);

}  // namespace heddle
