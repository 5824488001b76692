#pragma once

#include "heddle/engine/engine.h"

#include "engine/model_runner.h"
#include "model/decoder/decoder_config.h"

namespace heddle {

/// The options with their defaults filled in from the model and the machine, all but kv_memory.
/// Throws Error, which names the option, its value and what is allowed.
[[nodiscard]] EngineOptions complete_options(EngineOptions options,
                                             const model::DecoderConfig& config);

[[nodiscard]] ModelRunner::Limits limits_of(const EngineOptions& options);

}  // namespace heddle
