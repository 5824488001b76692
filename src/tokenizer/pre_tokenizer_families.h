#pragma once

#include <array>
#include <string_view>

namespace heddle::tokenizer {

/// How the tokenizers that share a GGUF file's tokenizer.ggml.pre split text into words.
struct PreTokenizerFamily {
  std::string_view name;
  std::array<const char*, 6> patterns;  // each splits what the one before it left; nullptr: none
  bool prefers_whole_words = false;
};

/// The family of that name; Error(kUnsupported), with the names that are known, where there is
/// none.
[[nodiscard]] const PreTokenizerFamily& find_pre_tokenizer_family(std::string_view name);

}  // namespace heddle::tokenizer
