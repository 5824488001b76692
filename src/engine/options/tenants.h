#pragma once

#include <cstdint>
#include <string>

#include "heddle/engine/request.h"

namespace heddle {

/// Who shares the engine: EngineOptions::fairness.
enum class Fairness : uint8_t { kOff, kAdapter, kTenant };

/// Throws Error where the option is none of "off" (or empty), "adapter" and "tenant".
[[nodiscard]] Fairness fairness_of(const std::string& option);

/// The one whose share of the engine a request takes; empty where there are no shares. Throws Error
/// where its `tenant` or `tenant_weight` is out of its range, or would have no effect.
[[nodiscard]] std::string tenant_of(const Request& request, Fairness fairness);

}  // namespace heddle
