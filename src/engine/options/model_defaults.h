#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "heddle/engine/generation_defaults.h"

#include "model/source/model_files.h"

namespace heddle {

/// The file that EngineOptions::generation_config names; empty: it is "auto", "none" or empty.
/// Throws Error where there is no such file.
[[nodiscard]] std::string generation_config_path(const std::string& option);

/// The defaults that the option selects. Throws Error with file, key and value where one is out of
/// its range.
[[nodiscard]] GenerationDefaults generation_defaults(const model::ModelFiles& files,
                                                     const std::string& option);

/// The model's end tokens, or those of the file that the option names where it has some.
[[nodiscard]] std::vector<int32_t> end_tokens_of(const model::ModelFiles& files,
                                                 const std::string& option);

}  // namespace heddle
