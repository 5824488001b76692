#pragma once

#include <span>

#include "heddle/ops/lora.h"

namespace heddle {

/// A linear site, or some of its slices, whose arguments are checked.
struct LoraSite {
  std::span<const LoraSlice> slices;
  ConstTensorView x;
  const LoraTable* a;
  const LoraTable* b;
  int first_slice = 0;  // of the tables
};

/// lora_apply with ids or segments, on any device.
void apply_site(const ExecContext& ctx, const LoraSite& site, const LoraBatch& batch);

/// lora_apply with pairs, on any device.
void apply_pairs(const ExecContext& ctx, const LoraSite& site, const LoraBatch& batch);

}  // namespace heddle
