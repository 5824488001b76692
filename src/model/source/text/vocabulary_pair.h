#pragma once

#include <string>

#include "files/bounded_open.h"

namespace heddle::model {

/// A tokenizer.json made of the vocab.json and merges.txt of a folder: byte-level BPE as
/// transformers makes it for the tokenizer_class of tokenizer_config.json, or without that for the
/// model_type of config.json. Qwen2Tokenizer and GPT2Tokenizer are known, with "Fast" or without;
/// others are Error(kUnsupported) that says how to make a tokenizer.json.
[[nodiscard]] std::string tokenizer_json_of_pair(const std::string& folder,
                                                 const files::FolderBounds& bounds = {});

/// "this makes one: python -c ...".
[[nodiscard]] std::string how_to_make_tokenizer_json(const std::string& folder);

}  // namespace heddle::model
