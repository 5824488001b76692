#pragma once

#include <cstddef>

#include "heddle/core/context.h"

#include "ops/lora/halves/half_params.h"
#include "ops/lora/run/select_kernel.h"
#include "ops/lora_device/call/pack_site.h"

// From a described call and its choice to the one struct that the kernel takes.

namespace heddle {

/// Of kFused and kFusedWindows; what the aligned kernel takes.
[[nodiscard]] cuda::lora::FusedParams pack_fused(const ExecContext& ctx, const LoraLaunch& part,
                                                 const LoraChoice& choice, uint32_t spin_limit);

/// The same and what the general kernel takes beside it.
[[nodiscard]] cuda::lora::FusedGeneralParams pack_fused_general(const ExecContext& ctx,
                                                                const LoraLaunch& part,
                                                                const LoraChoice& choice,
                                                                uint32_t spin_limit);

/// Of kHalves, but for partials and the number of blocks.
[[nodiscard]] cuda::lora::HalfParams pack_halves(const LoraLaunch& part);

}  // namespace heddle
