#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/huggingface/json_node.h"

namespace heddle::tokenizer {

/// The tokens of a tokenizer.json's model. Ids may have holes.
struct ModelVocabulary {
  std::unordered_map<std::string_view, int32_t> ids;  // views of the file
  int32_t end_id = 0;                                 // one past the highest

  /// kNoToken where there is none.
  [[nodiscard]] int32_t find(std::string_view token) const;
};

/// The vocabulary of a model of type BPE: {"a": 0, "b": 1}. Error where two tokens share an id, and
/// where there are far more holes than tokens.
[[nodiscard]] ModelVocabulary read_token_ids(const JsonNode& node);

/// Error(kUnsupported) where a table of `end_id` rows for `num_tokens` tokens is mostly holes.
void check_holes(int64_t end_id, size_t num_tokens, const std::string& where);

}  // namespace heddle::tokenizer
