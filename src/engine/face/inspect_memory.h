#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "model/adapters/adapter.h"

namespace heddle {

/// Writes what a model takes in memory: weights as they are packed, KV cache, and an adapter on all
/// linear layers. A model that heddle does not run: why there is no estimate.
void print_model_memory(std::ostream& out, const std::string& path);

/// Bytes of an adapter in memory, without what aligns its parts.
[[nodiscard]] int64_t estimated_bytes(const model::Adapter& adapter);

}  // namespace heddle
