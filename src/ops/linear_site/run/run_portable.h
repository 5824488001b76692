#pragma once

#include <span>

#include "heddle/core/context.h"
#include "heddle/core/workspace.h"
#include "heddle/ops/linear_site.h"

#include "ops/linear_site/prompt/prompt_params_cuda.h"

namespace heddle::cuda::linear_site {

/// kDecode of up to four slices by the kernels for every chip (portable/), in launches of as many
/// rows as one takes. num_outputs: of the whole site. False, and nothing launched, where they do
/// not take them.
template <class T>
bool run_portable_decode(const ExecContext& ctx, std::span<const LinearSlice> slices,
                         const ConstTensorView& x, int64_t num_outputs);
/// kPrompt; adapters: as join of the grouped kernels leaves their h, or none.
template <class T>
bool run_portable_prompt(const ExecContext& ctx, std::span<const LinearSlice> slices,
                         const ConstTensorView& x, const PromptAdapters& adapters);

/// Whether they take some slices of so many rows.
[[nodiscard]] bool takes_portable(const ExecContext& ctx, std::span<const LinearSlice> slices,
                                  LinearPath path, int64_t rows);

/// Workspace of kDecode.
[[nodiscard]] size_t portable_workspace_bytes(int64_t num_tokens, int64_t num_outputs);

}  // namespace heddle::cuda::linear_site
