#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "files/gguf.h"

namespace heddle::model {

/// What the files of a model say of how its answers are drawn.
struct GenerationConfig {
  std::string path{};  // of the file that was read; empty: there is none
  /// By the names that transformers and vLLM have: temperature, top_k, top_p, min_p,
  /// repetition_penalty, max_new_tokens. Their ranges are not checked.
  std::map<std::string, double, std::less<>> values{};
  /// Settings that would change answers and that heddle does not do, each as a sentence without its
  /// end: "no_repeat_ngram_size is 3".
  std::vector<std::string> not_done{};
};

inline constexpr const char* kGenerationConfig = "generation_config.json";

/// Of a generation_config.json. As in vLLM a value counts whether or not do_sample is there; where
/// that is false the temperature is 0. Null and missing are the same. Throws Error with file, key
/// and value where one has another type.
[[nodiscard]] GenerationConfig read_generation_config(const std::string& path);
/// Of a GGUF file: what llama.cpp's converter makes of it, general.sampling.*.
[[nodiscard]] GenerationConfig read_generation_config(const files::GgufFile& file);

/// eos_token_id of a JSON file, a number or a list of numbers; nothing where it is missing or null.
/// Throws Error where one is not below vocab_size.
[[nodiscard]] std::optional<std::vector<int32_t>> read_end_token_ids(const std::string& path,
                                                                     int64_t vocab_size);

}  // namespace heddle::model
