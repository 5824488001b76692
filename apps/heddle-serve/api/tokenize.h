#pragma once

#include <string>

#include "api/generation.h"
#include "options.h"

namespace heddle::serve {

/// The body of /tokenize: in LoRAX's form with `inputs`, else in vLLM's with `prompt` or
/// `messages`. The one prompt is what becomes tokens.
struct TokenizeCall {
  Generation generation{};
  bool is_lorax = false;
  bool returns_texts = false;  // of the tokens, in vLLM's form
};
/// Throws ApiError and heddle::Error, which name the field.
[[nodiscard]] TokenizeCall read_tokenize(const std::string& body, const app::ServeOptions& options);

/// The body of /detokenize: the one prompt has the tokens. Throws as read_tokenize.
[[nodiscard]] Generation read_detokenize(const std::string& body, const app::ServeOptions& options);

}  // namespace heddle::serve
