#pragma once

#include "ops/lora/run/lora_site.h"

namespace heddle {

/// The checks of lora_apply that need no look at device memory.
void check_apply(const ExecContext& ctx, std::span<const LoraSlice> slices,
                 const ConstTensorView& x, const LoraTable& a, const LoraTable& b,
                 const LoraBatch& batch);

/// lora_apply with ids or segments, on any device.
void apply_site(const ExecContext& ctx, const LoraSite& site, const LoraBatch& batch);

/// lora_apply with pairs, on any device.
void apply_pairs(const ExecContext& ctx, const LoraSite& site, const LoraBatch& batch);

}  // namespace heddle
