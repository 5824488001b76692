#pragma once

#include <memory>

#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_state.h"

namespace heddle::tokenizer {

/// The tokenizer of a GGUF file's vocabulary. Throws heddle::Error where the vocabulary contradicts
/// itself.
[[nodiscard]] std::unique_ptr<Tokenizer::State> make_state(Vocabulary vocabulary);

}  // namespace heddle::tokenizer
