#pragma once

#include <cstddef>
#include <cstdint>

#include "heddle/ops/lora_table.h"

namespace heddle::cuda::lora {

/// LoraTable as a kernel reads it: where the weight of (slot, slice) lies.
struct WeightAddresses {
  enum Kind : int32_t { kEntries, kPointers, kStack };
  const std::byte* base;  // entries of the first slice, pointers, or stack
  int64_t slot_stride;    // LoraWeights, pointers, or bytes
  int64_t offset;         // bytes from a pointer, or from the slot's part of the stack
  int64_t row_stride;     // elements; that of an entry is its own
  int32_t max_rank;
  Kind kind;
};

}  // namespace heddle::cuda::lora
