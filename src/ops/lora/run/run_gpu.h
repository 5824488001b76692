#pragma once

#include <optional>
#include <span>

#include "heddle/ops/lora.h"

#include "ops/lora/device/params.h"
#include "ops/lora/run/select_kernel.h"

namespace heddle {

/// One call on a CUDA device; a null half is one that it does not have. Arguments are checked.
struct LoraGpuCall {
  std::span<const LoraSlice> slices;  // windows of y
  ConstTensorView input;              // x, or h where `a` is null
  const LoraTable* a = nullptr;
  const LoraTable* b = nullptr;
  int first_slice = 0;  // of the tables
  const LoraBatch* batch = nullptr;
  float scale = 1.0f;
  bool accumulate = false;
  /// How often a block looks for another's sums before it makes them itself; 0 in tests.
  uint32_t spin_limit = 1u << 14;
  std::optional<LoraRoute> route = {};  // rather than the one that select_route() finds; in tests

  [[nodiscard]] const LoraTable& table() const { return a != nullptr ? *a : *b; }
};

/// A table from slice first_slice on, and an index array, as kernels read them. Ranks count up to rank_limit.
[[nodiscard]] cuda::lora::WeightAddresses addresses(const LoraTable& table, int first_slice,
                                                    int64_t rank_limit);
[[nodiscard]] cuda::lora::Indices indices(const ConstTensorView& t);

void run_on_gpu(const ExecContext& ctx, const char* op, const LoraGpuCall& call);

/// How one launch of windows with up to these units each runs.
[[nodiscard]] cuda::lora::FusedLaunch select_fused_launch(int64_t num_shrinks, int64_t num_expands,
                                                          int max_rank, int num_sms,
                                                          int num_windows = 1);

/// Workspace of a call without an exchange.
[[nodiscard]] size_t lora_gpu_workspace_bytes(int64_t num_tokens, int64_t in_features,
                                              int num_slices, int max_rank);

}  // namespace heddle
