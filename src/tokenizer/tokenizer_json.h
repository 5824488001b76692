#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tokenizer/tokenizer.h"

namespace heddle::tokenizer {

/// A token that another file adds to those of a tokenizer.json, as tokenizer_config.json does.
struct ExtraToken {
  std::string content;
  bool special = false, normalized = true, lstrip = false, rstrip = false, single_word = false;
  /// Whether its flags count where the tokenizer.json has added the same token.
  bool replaces = false;

  bool operator==(const ExtraToken&) const = default;
};

/// The tokenizer of a tokenizer.json, the file of the `tokenizers` package. `name` begins the
/// errors: "tokenizer.json: normalizer of type 'Nmt' is not supported". What is not understood is
/// kUnsupported, what contradicts itself kInvalidArgument. bos() and eos() are kNoToken: the file
/// does not tell. See docs/tokenizer.md for what is supported. `extra` tokens are added after those
/// of the file, in order: one that the vocabulary lacks gets the next id.
[[nodiscard]] Tokenizer read_tokenizer_json(std::string_view json, const std::string& name,
                                            std::span<const ExtraToken> extra = {});

}  // namespace heddle::tokenizer
