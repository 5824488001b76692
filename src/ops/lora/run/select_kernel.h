#pragma once

#include <cstdint>

namespace heddle {

/// How the rows of a call on a GPU run; all routes have the same bits.
enum class LoraRoute {
  kWindows,       // 256 rows at a time, one launch or two for each
  kFusedWindows,  // all windows in one launch
  kGrouped,       // all rows grouped by adapter, two launches
};

/// What decides it, all of it known to the host.
struct LoraWork {
  int64_t tokens, in_features;
  int64_t output_tiles;  // of 256 outputs, of all slices
  int num_slices, max_rank, num_slots;
  bool fits_exchange;  // has place for the sums of a window
  bool fits_at_once;   // of all, and there is a kernel for them
  bool is_aligned;
  int num_sms;
};

/// Of a call that may be a prefill; others go in windows.
[[nodiscard]] LoraRoute select_route(const LoraWork& work);

/// Whether a plan of so many rows and ranks has what a prefill needs: always above 256 rows, and where one may be faster.
[[nodiscard]] constexpr bool may_prefill(int64_t num_tokens, int64_t max_rank) {
  return num_tokens > 256 || (num_tokens >= 128 && max_rank > 64);
}

}  // namespace heddle
