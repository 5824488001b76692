#pragma once

#include <cstdint>

namespace heddle::cuda::linear_site {

// The shape of a block of the kernels of dense products for every chip from 8.0 on, for kernels and
// for what selects them. They have rings of asynchronous copies and products of mma.sync, neither
// clusters nor the copy engine.

inline constexpr int kPortableThreads = 256, kPortableWarps = kPortableThreads / 32;
inline constexpr int kPortableStepFeatures = 64;  // features of a stage
inline constexpr int kPortableRowBytes = 2 * kPortableStepFeatures;

// Few rows. Tiles have a multiple of 16 outputs.
inline constexpr int kPortableMinTile = 32, kPortableMaxTile = 256;
inline constexpr int kPortableMaxBoxes = 4;  // of 64 features, of a stage
/// Stages: many rows take more memory for each.
[[nodiscard]] constexpr int portable_stages(int num_rows) { return num_rows > 64 ? 3 : 4; }
// Sites of fewer outputs share the features of a tile among two blocks, or four.
inline constexpr int64_t kOutputsOfTwo = 12288, kOutputsOfFour = 2048;

// Many rows.
inline constexpr int kPortableTileRows = 128;
[[nodiscard]] constexpr uint32_t portable_prompt_stage_bytes(int tile_outputs) {
  return static_cast<uint32_t>((kPortableTileRows + tile_outputs) * kPortableRowBytes);
}

[[nodiscard]] constexpr int portable_prompt_stages(int tile_outputs) {
  return tile_outputs == 256 ? 2 : 3;
}
[[nodiscard]] constexpr uint32_t portable_prompt_bytes(int tile_outputs) {
  return static_cast<uint32_t>(portable_prompt_stages(tile_outputs)) *
         portable_prompt_stage_bytes(tile_outputs);
}

/// Dynamic shared memory of a block: on every chip from 8.0 on, and on 8.0, 8.7, 9.x and 10.x. A
/// kernel has some of its own.
inline constexpr uint32_t kPortableSmallBytes = 98 * 1024, kPortableLargeBytes = 162 * 1024;

}  // namespace heddle::cuda::linear_site
