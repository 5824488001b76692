#pragma once

#include <cstddef>
#include <cstdint>

#include "heddle/core/context.h"
#include "heddle/core/dtype.h"

namespace heddle::cuda::attention {

/// Steps are bytes for o, o_a and o_b [num_tokens, num_q_heads, head_dim], elements for the f32
/// tensors [num_tokens, num_q_heads].
struct MergeParams {
  struct Rows {
    std::byte* data = nullptr;
    int64_t token = 0, head = 0;
  };
  struct Sums {
    float* data = nullptr;
    int64_t token = 0, head = 0;
  };
  Rows o, o_a, o_b;
  Sums lse, lse_a, lse_b;  // lse.data may be nullptr
  int64_t num_rows = 0;    // tokens * heads
  int64_t num_heads = 0;
  int32_t row_units = 0;   // of 16 bytes, or elements
  int32_t row_lanes = 32;  // that share a row: a power of two up to 32
  DType dtype = DType::kFloat32;
};

/// is_vector: all rows begin at multiples of 16 bytes and are multiples of 16 bytes long.
void launch_merge_states(const MergeParams& p, bool is_vector, cudaStream_t stream);

}  // namespace heddle::cuda::attention
