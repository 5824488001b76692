#pragma once

#include <cstdint>

#include "cuda/sm90/swizzled_rows.h"

namespace heddle::cuda::linear_site {

// The shape of a block of the kernel for prompts, for kernels and for what selects them.

inline constexpr int kPromptTileRows = 128;     // rows of x of a tile
inline constexpr int kPromptGroupRows = 64;     // of which a warpgroup multiplies so many
inline constexpr int kPromptWarpRows = 16;      // and a warp so many
inline constexpr int kPromptStepFeatures = 64;  // features of a stage: kSwizzledRowBytes
inline constexpr int kPromptConsumerWarps = 8;  // two warpgroups; one more requests data
inline constexpr int kPromptThreads = 32 * kPromptConsumerWarps + 128;
inline constexpr int kPromptRingBytes = 192 * 1024;
inline constexpr int kPromptMaxClusterSize = 2;
/// y on its way to memory: a line of 128 bytes of each of the 16 rows of a warp.
inline constexpr int kPromptLinesBytes = kPromptWarpRows * 128;

[[nodiscard]] constexpr int prompt_stage_bytes(int tile_outputs) {
  return (kPromptTileRows + tile_outputs) * kSwizzledRowBytes;
}
[[nodiscard]] constexpr int prompt_stages(int tile_outputs) {
  return kPromptRingBytes / prompt_stage_bytes(tile_outputs);
}
/// Of a block: stages, lines, two barriers for each stage.
[[nodiscard]] constexpr int prompt_shared_bytes(int tile_outputs) {
  return prompt_stages(tile_outputs) * (prompt_stage_bytes(tile_outputs) + 2 * 8) +
         kPromptConsumerWarps * kPromptLinesBytes;
}

}  // namespace heddle::cuda::linear_site
