#pragma once

#include <optional>

#include "heddle/core/context.h"

#include "ops/lora/run/select_kernel.h"
#include "ops/lora_device/call/lora_site.h"

namespace heddle {

/// What tests set.
struct LoraGpuOptions {
  /// How often a block looks for another's sums before it makes them itself.
  uint32_t spin_limit = 1u << 14;
  std::optional<LoraRoute> route = {};  // rather than the one that would be selected
};

/// Runs a call on a CUDA device. Arguments are checked; `op` names it in errors.
void run_on_gpu(const ExecContext& ctx, const char* op, const LoraSite& site,
                const LoraBatch& batch, const LoraGpuOptions& options = {});

/// Workspace of a call without an exchange.
[[nodiscard]] size_t lora_gpu_workspace_bytes(int64_t num_tokens, int64_t in_features,
                                              int num_slices, int max_rank);

}  // namespace heddle
