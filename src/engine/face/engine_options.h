#pragma once

#include "heddle/engine/engine.h"

#include "engine/adapters/adapter_store.h"
#include "engine/runner/model_runner.h"
#include "model/config/decoder_config.h"

namespace heddle {

/// Whether the keys and values of a prompt depend on its length: then requests cannot share any,
/// and one that was parked could not be prefilled again with the same bits.
[[nodiscard]] bool keys_depend_on_length(const model::DecoderConfig& config);

/// The options with their defaults filled in from the model and the machine, all but kv_memory and
/// kv_host_memory. has_host_tier: also on the CPU.
/// Throws Error, which names the option, its value and what is allowed.
[[nodiscard]] EngineOptions complete_options(EngineOptions options,
                                             const model::DecoderConfig& config,
                                             bool has_host_tier = false);

/// Where the engine runs. Throws Error where the option names no device of this build and machine.
[[nodiscard]] Device device_of(const EngineOptions& options);

/// Whether there are folders of adapters that are found by name.
[[nodiscard]] bool finds_adapters(const EngineOptions& options);

/// What adapters may take; asks the machine where the options leave it open.
[[nodiscard]] AdapterStore::Limits adapter_limits(const EngineOptions& options);

[[nodiscard]] ModelRunner::Limits limits_of(const EngineOptions& options,
                                            bool steps_as_on_gpu = false);

}  // namespace heddle
