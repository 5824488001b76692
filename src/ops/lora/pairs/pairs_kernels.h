#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/index.h"

#include "ops/lora_device/sums.h"
#include "ops/lora_device/weight_addresses.h"

// Several adapters for one token: each pass adds the next pair of every token to f32 sums of y.
// Pass 0 adds the first pairs, pass 1 the second ones.

namespace heddle {

/// What copy_touched_rows() does: sums = y before the first pass, y = sums after the last.
enum class LoraPairCopy : int32_t { kWiden, kNarrow };

namespace cpu::lora {

/// sums[i] = y[i], widened exactly, for i in [0, n); dtype is f16 or bf16.
void widen_outputs(float* sums, const std::byte* y, DType dtype, int64_t n);
/// y[i] = sums[i], rounded.
void narrow_outputs(std::byte* y, const float* sums, DType dtype, int64_t n);

}  // namespace cpu::lora

namespace cuda::lora {

/// The pairs of a window of tokens.
struct Pairs {
  ConstIndexVector starts;  // [num_tokens + 1], from the window's first token on
  ConstIndexVector slots;   // [num_pairs] of the whole batch
  const float* scales;      // [num_pairs], or nullptr: 1
  const float* row_scale;   // [num_tokens] of the window, or nullptr: 1
  int64_t num_pairs, max_pairs;
  int32_t num_tokens, num_slots;
};

/// slot_ids[t] and factors[t] become the slot and scale * row_scale of pair `index` of token t, or
/// kNoAdapter and 0 where it has no such pair.
void pick_pairs(const Pairs& p, int64_t index, int32_t* slot_ids, float* factors,
                cudaStream_t stream);

/// A slice of a window: y and its sums from the first row on. Without sums (an f32 y) nothing is
/// copied.
struct PairSlice {
  void* y;           // [num_tokens, width] of `dtype`
  int64_t y_stride;  // elements
  float* sums;       // [num_tokens, width]
  int64_t width;
  DType dtype;
};

struct PairSite {
  WeightAddresses a, b;  // from the first of the slices on
  int64_t sums_stride;   // elements between rows of sums
  int64_t widest;        // of the widths
  int32_t num_slices;
  PairSlice slices[kMaxSlices];
};

/// sums = y, widened exactly (kWiden), or y = sums, rounded (kNarrow), for the rows of each slice
/// that a pair touches.
void copy_touched_rows(const Pairs& p, const PairSite& site, LoraPairCopy copy,
                       cudaStream_t stream);

}  // namespace cuda::lora
}  // namespace heddle
