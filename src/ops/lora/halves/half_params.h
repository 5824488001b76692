#pragma once

#include "ops/lora_device/batch_rows.h"
#include "ops/lora_device/site_params.h"

namespace heddle::cuda::lora {

/// One launch of the two-launch route; `plan` is null where the blocks group the rows themselves.
struct HalfParams : SiteParams {
  // Without a plan:
  int32_t num_rank_tiles;  // of each row tile
  int64_t first_row;       // of the window
  BatchRows rows;
  bool is_bf16;  // the weights, which else are f16
};

/// Parts of a call, one after the other: lora_apply is kShrink and kExpand, lora_shrink kShrink and
/// kSum, lora_expand kExpand alone.
enum class HalfStep { kShrink, kExpand, kSum };

struct HalfLaunch {
  HalfStep step;
  bool is_aligned;  // for vector loads, ranks included, and y is of the weights' dtype
  int num_blocks;
  int device;  // the current one
};

/// T: dtype of the weights and of x.
template <class T>
void launch_half(const HalfParams& p, const HalfLaunch& launch, cudaStream_t stream);

/// Few rows without a plan, aligned for vector loads, one slice: each row is a row tile. Shrink
/// takes clusters of blocks, and up to so many chunks in each.
inline constexpr int kRowChunks = 8;
[[nodiscard]] bool can_shrink_rows(int device);
void launch_shrink_rows(const HalfParams& p, int device, cudaStream_t stream);
void launch_expand_rows(const HalfParams& p, int device, cudaStream_t stream);

}  // namespace heddle::cuda::lora
