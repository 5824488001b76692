#pragma once

#include <cstdint>
#include <string>

#include "heddle/engine/engine.h"

namespace heddle::app {

/// Writes a PEFT adapter of small random weights on all seven projections of every layer, in bf16
/// where the model's activations are and else in f16: for measurements.
void write_synthetic_adapter(const std::string& folder, const ModelInfo& model, int rank,
                             uint64_t seed);

/// Bytes of its weights.
int64_t synthetic_adapter_bytes(const ModelInfo& model, int rank);

}  // namespace heddle::app
