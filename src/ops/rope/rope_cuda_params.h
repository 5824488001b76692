#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/index.h"
#include "cuda/rotary.h"

#include "heddle/core/context.h"
#include "heddle/core/dtype.h"

namespace heddle::cuda::rope {

/// Rows of a table [num_tokens, num_pairs] of cosines and sines.
struct RopeTable {
  float *cos = nullptr, *sin = nullptr;
  int64_t cos_stride = 0, sin_stride = 0;  // elements
};

/// The pairs [first_pair, first_pair + num_pairs) of a head, a pair being the elements d and d +
/// pair_distance.
struct RopeKernel {
  std::byte* x = nullptr;                 // [num_tokens, num_heads, head_dim]
  int64_t token_step = 0, head_step = 0;  // bytes
  int64_t num_tokens = 0;
  int32_t num_heads = 0, first_pair = 0, num_pairs = 0, pair_distance = 0;
  DType dtype = DType::kFloat32;
  ConstIndexVector positions;  // absent: the table's rows
};

/// x turned in place; from the table where p.positions is absent, else from the frequencies of the
/// pairs from first_pair on. is_vector: all rows, pairs and first_pair are multiples of 16 bytes.
void launch_rope(const RopeKernel& p, const RopeTable& table, const RotaryFrequencies* frequencies,
                 bool is_vector, cudaStream_t stream);

/// Frequencies in turns per position; a kernel divides them by the factors that lie on the device.
struct RopeTurns {
  int32_t num_pairs = 0;
  double turns[RotaryFrequencies::kMaxPairs];
};

/// Columns [first_pair, first_pair + turns.num_pairs) of the table, times attention_factor.
/// factors: of these pairs, or nullptr.
void launch_rope_table(const RopeTable& table, const ConstIndexVector& positions,
                       int64_t num_tokens, int first_pair, const RopeTurns& turns,
                       const float* factors, float attention_factor, cudaStream_t stream);

}  // namespace heddle::cuda::rope
