#pragma once

#include <cstdint>

#include "heddle/core/tensor_view.h"
#include "heddle/ops/kv_cache.h"

namespace heddle::cuda::attention {

/// Bytes that a thread moves at once where rows allow it.
inline constexpr int64_t kVectorBytes = 16;

/// Whether rows [num_tokens, num_heads, head_dim] begin at multiples of 16 bytes.
[[nodiscard]] inline bool begin_aligned(const ConstTensorView& rows) {
  const auto element = static_cast<int64_t>(size_of(rows.dtype()));
  const int64_t steps = (rows.stride(0) | rows.stride(1)) * element;
  return (reinterpret_cast<intptr_t>(rows.raw()) | steps) % kVectorBytes == 0;
}

/// Whether every key and value begins at a multiple of 16 bytes and is a multiple of 16 bytes long.
/// That pages with addresses begin there is promised by the contract.
[[nodiscard]] inline bool has_aligned_rows(const PagedKv& cache) {
  const auto element = static_cast<int64_t>(size_of(cache.dtype));
  int64_t steps = cache.k_offset | (cache.v_offset - cache.k_offset) | cache.head_stride |
                  cache.slot_stride | cache.head_dim;
  if (cache.pool != nullptr) steps |= cache.page_stride;
  return (reinterpret_cast<intptr_t>(cache.pool) | steps * element) % kVectorBytes == 0;
}

}  // namespace heddle::cuda::attention
