#pragma once

#include <algorithm>
#include <cstdint>

#include "core/math.h"
#include "ops/lora_device/cpu/row_groups.h"

namespace heddle {

/// Most f32 sums of a window of tokens: 32 MiB. With 28,672 outputs (gate and up of an 8B Llama) a
/// window still has all its rows.
inline constexpr int64_t kMaxPairSums = int64_t{8} << 20;

/// Columns of sums of a slice that has `width` outputs: rows of sums then begin at multiples of 16
/// bytes.
[[nodiscard]] constexpr int64_t pair_sum_columns(int64_t width) { return round_up(width, 4); }

/// Rows of a window whose rows have `columns` sums.
[[nodiscard]] constexpr int64_t pair_window_rows(int64_t columns) {
  return std::clamp<int64_t>(kMaxPairSums / std::max<int64_t>(columns, 1), 1, kWindowRows);
}

}  // namespace heddle
