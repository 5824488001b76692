#pragma once

#include <nlohmann/json.hpp>

#include "heddle/engine/engine.h"

#include "bench.h"

namespace heddle::app {

/// The head of a file of figures of an engine: what they are, where and of what they were measured;
/// "records" is empty.
[[nodiscard]] nlohmann::ordered_json engine_record(const char* what, const Engine& engine,
                                                   const BenchOptions& options);

}  // namespace heddle::app
