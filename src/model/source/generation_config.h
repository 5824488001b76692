#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "files/gguf.h"
#include "files/json_tree.h"

namespace heddle::model {

/// What the files of a model say about sampling.
struct GenerationConfig {
  std::string path{};  // of the file that was read; empty: no file
  /// By the names that transformers and vLLM have: temperature, top_k, top_p, min_p,
  /// repetition_penalty, max_new_tokens. Their ranges are not checked.
  std::map<std::string, double, std::less<>> values{};
  /// Settings that would change answers and that heddle does not do, each as a sentence without its
  /// end: "no_repeat_ngram_size is 3".
  std::vector<std::string> not_done{};
};

inline constexpr const char* kGenerationConfig = "generation_config.json";

/// A generation_config.json, parsed once. Null and missing are the same.
class GenerationFile {
 public:
  explicit GenerationFile(const std::string& path);

  /// As in vLLM a value counts whether or not do_sample is given; where that is false the
  /// temperature is 0. Throws Error with file, key and value where one has another type.
  [[nodiscard]] GenerationConfig config() const;
  /// end_token_ids of it.
  [[nodiscard]] std::optional<std::vector<int32_t>> end_tokens(int64_t vocab_size) const;

 private:
  std::string path_;
  files::JsonTree settings_;
};

/// Of a GGUF file: what llama.cpp's converter makes of it, general.sampling.*.
[[nodiscard]] GenerationConfig read_generation_config(const files::GgufFile& file);

/// eos_token_id of the settings in a file, an integer or a list of integers, those below
/// vocab_size; nothing where it is missing or null. Throws Error where it is another value.
[[nodiscard]] std::optional<std::vector<int32_t>> end_token_ids(const files::Json& settings,
                                                                const std::string& path,
                                                                int64_t vocab_size);

}  // namespace heddle::model
