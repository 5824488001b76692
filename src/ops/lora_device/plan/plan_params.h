#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/index.h"

#include "ops/lora_device/batch_rows.h"

namespace heddle::cuda::lora {

struct PlanParams {
  std::byte* plans;  // of each window
  size_t plan_bytes;
  std::byte* grouped;  // the plan of all rows
  int64_t num_tokens;
  int32_t num_windows;  // 0: no plans of windows
  int32_t window_rows, max_rank;
  uint32_t tag;  // goes into the plan
  BatchRows rows;
  /// The largest rank of a slot at any site, or absent: max_rank for all.
  ConstIndexVector slot_ranks;
};

/// Groups the rows of each window by adapter, one block a window.
void plan_windows(const PlanParams& p, cudaStream_t stream);
/// Groups all rows of a batch, and those of each window if p.num_windows is not 0, in one launch.
/// `device`: the current one.
void plan_grouped(const PlanParams& p, int device, cudaStream_t stream);

}  // namespace heddle::cuda::lora
