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

/// How many blocks share a row at most, of which so many clusters run at once: the number by which
/// all rows are done first. Each row takes a time of its own that blocks do not share.
template <class AtOnce>
[[nodiscard]] constexpr int select_blocks(int64_t num_rows, int max_blocks, const AtOnce& at_once) {
  // The time of a row that a block has alone, and that which it takes in any case.
  constexpr int64_t kWhole = 80, kOwn = 12;
  int best = 1;
  int64_t least = 0;
  for (int blocks = 1; blocks <= max_blocks; blocks *= 2) {
    const int64_t clusters = at_once(blocks), waves = (num_rows + clusters - 1) / clusters;
    const int64_t time = waves * (kWhole / blocks + kOwn);
    if (blocks == 1 || time < least) {
      best = blocks;
      least = time;
    }
  }
  return best;
}

}  // namespace heddle::cuda::sampling
