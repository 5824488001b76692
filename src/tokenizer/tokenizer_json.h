#pragma once

#include <string>
#include <string_view>

#include "tokenizer/tokenizer.h"

namespace heddle::tokenizer {

/// The tokenizer of a tokenizer.json, the file of the `tokenizers` package. `name` begins the
/// errors: "tokenizer.json: normalizer of type 'Nmt' is not supported". What is not understood is
/// kUnsupported, what contradicts itself kInvalidArgument. bos() and eos() are kNoToken: the file
/// does not tell. See docs/tokenizer.md for what is supported.
[[nodiscard]] Tokenizer read_tokenizer_json(std::string_view json, const std::string& name);

}  // namespace heddle::tokenizer
