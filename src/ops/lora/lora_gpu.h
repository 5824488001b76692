#pragma once

#include <span>

#include "heddle/ops/lora.h"

namespace heddle {

/// One call on a CUDA device; a null half is one that it does not have. Arguments are checked.
struct LoraGpuCall {
  std::span<const LoraSlice> slices;  // windows of y
  ConstTensorView u;                  // x, or h where `a` is null
  const LoraTable* a = nullptr;
  const LoraTable* b = nullptr;
  int first_slice = 0;  // of the tables
  const LoraBatch* batch = nullptr;
  float scale = 1.0f;
  bool accumulate = false;

  [[nodiscard]] const LoraTable& table() const { return a != nullptr ? *a : *b; }
};

void run_on_gpu(const ExecContext& ctx, const char* op, const LoraGpuCall& call);

/// Workspace of a call without an exchange.
[[nodiscard]] size_t lora_gpu_workspace_bytes(int64_t num_tokens, int64_t in_features,
                                              int num_slices, int max_rank);

}  // namespace heddle
