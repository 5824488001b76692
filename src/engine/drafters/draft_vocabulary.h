#pragma once

#include <string>

#include "tokenizer/tokenizer.h"

namespace heddle {

/// Throws Error, which names both models and what differs, unless a token of one is the same token
/// of the other. One may have more tokens than the other, and what has no text or is only there to
/// fill the vocabulary up is no token.
void check_same_tokens(const tokenizer::Tokenizer& model, const std::string& model_path,
                       const tokenizer::Tokenizer& draft, const std::string& draft_path);

}  // namespace heddle
