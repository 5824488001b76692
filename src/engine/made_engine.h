#pragma once

#include <cstdint>
#include <string_view>

#include "heddle/engine/engine.h"

namespace heddle {

/// An engine of a model whose weights are made of a seed, for measurements (model/source/
/// made_model.h). config_json: as a config.json of transformers. options.weights: the type in which
/// the matrices are made, empty: bf16; options.model_path is not read.
[[nodiscard]] Engine make_engine(std::string_view config_json, uint64_t seed,
                                 const EngineOptions& options);

}  // namespace heddle
