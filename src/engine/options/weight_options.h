#pragma once

#include "heddle/engine/engine.h"

#include "model/weights/decoder_weights.h"

namespace heddle {

/// How the model is loaded. Throws Error where EngineOptions::weights is no name of a type.
[[nodiscard]] model::LoadOptions load_options_of(const EngineOptions& options);

/// What was packed, and what it cost.
void describe_weights(ModelInfo& info, const EngineOptions& options,
                      const model::Quantization& quantization);

}  // namespace heddle
