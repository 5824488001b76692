#pragma once

#include <algorithm>
#include <cstdint>

namespace heddle::cuda::sampling {

/// How many blocks share a row, how many chunks of it each has, and how many of these it keeps in
/// shared memory.
struct RowChoice {
  int num_blocks, num_chunks, slots_per_row;
};
inline constexpr int kSlotsAtOnce = 4;

/// Blocks in clusters need compute capability 9.0; elsewhere max_blocks is 1. A block has room for
/// num_slots chunks of all its rows, a multiple of kSlotsAtOnce.
[[nodiscard]] constexpr RowChoice select_row(int64_t vocab_size, int64_t chunk, int max_blocks,
                                             int num_slots) {
  const int64_t chunks = (vocab_size + chunk - 1) / chunk;
  int num_blocks = 1;
  while (2 * num_blocks <= max_blocks && num_blocks < chunks) num_blocks *= 2;
  const int64_t own = (chunks + num_blocks - 1) / num_blocks;
  const int64_t padded = (own + kSlotsAtOnce - 1) / kSlotsAtOnce * kSlotsAtOnce;
  return {num_blocks, static_cast<int>(own),
          static_cast<int>(std::min<int64_t>(padded, num_slots))};
}

}  // namespace heddle::cuda::sampling
