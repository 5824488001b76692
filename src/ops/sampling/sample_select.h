#pragma once

#include <algorithm>
#include <cstdint>

namespace heddle::cuda::sampling {

/// How many blocks share a row, and how many chunks of it each keeps in shared memory.
struct RowChoice {
  int num_blocks, cached_chunks;
};

/// Blocks in clusters need compute capability 9.0; elsewhere a row has one. A row that fits is kept
/// whole. `large_bytes` of shared memory are there for it.
[[nodiscard]] constexpr RowChoice select_row(int64_t vocab_size, int64_t chunk, int max_blocks,
                                             int64_t shared_bytes) {
  const int64_t chunks = (vocab_size + chunk - 1) / chunk;
  int num_blocks = 1;
  while (2 * num_blocks <= max_blocks && num_blocks < chunks) num_blocks *= 2;
  const int64_t own = (chunks + num_blocks - 1) / num_blocks;
  const int64_t room = shared_bytes / (chunk * int64_t{sizeof(float)});
  return {num_blocks, static_cast<int>(std::min(own, room))};
}

}  // namespace heddle::cuda::sampling
