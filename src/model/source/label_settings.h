#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "files/json.h"
#include "model/config/score_head.h"

namespace heddle::model {

// What a config.json says of the labels of a score head; `path` begins errors.

/// id2label where it names all of them, else what transformers calls labels without names.
[[nodiscard]] std::vector<std::string> read_labels(const files::Json& config, int64_t num_labels,
                                                   const std::string& path);
/// By problem_type. Without it one label has a sigmoid, and several have a softmax.
[[nodiscard]] ScoreActivation score_activation(const files::Json& config, int64_t num_labels,
                                               const std::string& path);

}  // namespace heddle::model
