#pragma once

#include "core/math.h"
#include "ops/lora_device/window_plan.h"

namespace heddle {

/// Bytes of a plan's first half, of windows, for so many rows.
[[nodiscard]] constexpr size_t windows_plan_bytes(int64_t num_tokens, int64_t max_rank) {
  return size_t(ceil_div(num_tokens, cuda::lora::kWindowRows)) *
         cuda::lora::window_plan_bytes(cuda::lora::kWindowRows, max_rank);
}

/// Whether a plan of so many rows has a second half, rows grouped by adapter.
[[nodiscard]] constexpr bool has_grouped_plan(int64_t num_tokens) { return num_tokens >= 128; }

}  // namespace heddle
