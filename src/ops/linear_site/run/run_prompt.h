#pragma once

#include <span>

#include "heddle/core/context.h"
#include "heddle/core/workspace.h"
#include "heddle/ops/linear_site.h"

namespace heddle::cuda::linear_site {

/// The products of up to four slices for any number of rows, in one launch. False, and nothing
/// launched, where the kernel does not take them.
template <class T>
bool run_prompt(const ExecContext& ctx, std::span<const LinearSlice> slices,
                const ConstTensorView& x);

/// Whether the kernel takes all slices of a call with adapters: x, and of packed weights those that
/// are dequantised.
[[nodiscard]] bool takes_prompt(const ExecContext& ctx, std::span<const LinearSlice> slices,
                                const ConstTensorView& x);

/// The products of all slices with the adapters inside: for each four slices A x by the grouped
/// kernels, then one launch.
template <class T>
void run_prompt_inside(const ExecContext& ctx, std::span<const LinearSlice> slices,
                       const ConstTensorView& x, const LinearAdapters& adapters,
                       Workspace& workspace);

/// Workspace of the latter, in addition to that of lora_apply.
[[nodiscard]] size_t prompt_workspace_bytes(int64_t num_tokens, int num_slices, int max_rank);

}  // namespace heddle::cuda::linear_site
