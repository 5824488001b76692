#pragma once

#include <span>

#include "heddle/ops/lora.h"

namespace heddle {

/// A linear site, or some of its slices, whose arguments are checked. A null half is one that the
/// call does not have.
struct LoraSite {
  std::span<const LoraSlice> slices;
  ConstTensorView input;  // x [num_tokens, in_features]; h [num_tokens, rank] where `a` is null
  const LoraTable* a = nullptr;
  const LoraTable* b = nullptr;
  int first_slice = 0;  // of the tables
  float scale = 1.0f;
  bool accumulate = true;

  [[nodiscard]] const LoraTable& table() const { return a != nullptr ? *a : *b; }
};

}  // namespace heddle
