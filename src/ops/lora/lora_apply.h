#pragma once

#include "ops/lora_device/call/lora_site.h"

namespace heddle {

/// lora_apply with ids or segments, on any device.
void apply_site(const ExecContext& ctx, const LoraSite& site, const LoraBatch& batch);

/// lora_apply with pairs, on any device.
void apply_pairs(const ExecContext& ctx, const LoraSite& site, const LoraBatch& batch);

}  // namespace heddle
