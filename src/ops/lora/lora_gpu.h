#pragma once

#include <span>

#include "heddle/ops/lora.h"

#include "ops/lora/lora_cuda_params.h"

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
  /// How often a block looks for another's sums before it makes them itself; 0 in tests.
  uint32_t spin_limit = 1u << 14;
  bool in_windows = false;  // however many rows there are; true in tests

  [[nodiscard]] const LoraTable& table() const { return a != nullptr ? *a : *b; }
};

/// A table from slice first_slice on, and an index array, as kernels read them. Ranks count up to rank_limit.
[[nodiscard]] cuda::LoraAddresses addresses(const LoraTable& table, int first_slice,
                                            int64_t rank_limit);
[[nodiscard]] cuda::LoraIndices indices(const ConstTensorView& t);

void run_on_gpu(const ExecContext& ctx, const char* op, const LoraGpuCall& call);

/// How the kernel for tables of entries runs a window with up to these units.
[[nodiscard]] cuda::LoraDirectLaunch select_direct_launch(int64_t num_shrinks, int64_t num_expands,
                                                          int max_rank, bool is_aligned,
                                                          int num_sms);

/// How a window with up to these work items runs in the other kernels: kFused in one launch, kFirst in
/// two. Two where all blocks of both run at once, so that nobody waits for a flag, and where few rows
/// share many chunks, whose sums every block reads.
[[nodiscard]] cuda::LoraForm select_lora_form(int64_t num_shrinks, int64_t num_expands,
                                              int num_chunks, int64_t num_resident);

/// Workspace of a call without an exchange.
[[nodiscard]] size_t lora_gpu_workspace_bytes(int64_t num_tokens, int64_t in_features,
                                              int num_slices, int max_rank);

}  // namespace heddle
