#pragma once

#include <cstdint>

#include "heddle/ops/linear.h"

namespace heddle {

/// The scale of a run of weights inside a block, next to the block's own f16 scale.
enum class SubScales : uint8_t {
  kNone,
  kUnsigned6,  // a 6-bit scale and a 6-bit minimum for 32 weights (Q4_K, Q5_K)
  kSigned8,    // an 8-bit scale for 16 weights (Q6_K)
};

/// What tells the formats apart. The value of a weight with code q is, with the block's scales d
/// and m (both f16) and the sub-block's s and n,
///   d (q - code_offset) [+ m]      without sub-scales
///   (d s) q - (m n)                SubScales::kUnsigned6
///   (d s) (q - code_offset)        SubScales::kSigned8
/// All products are exact in f32, so a value is rounded at most once, by the sum.
struct BlockFormat {
  const char* name;
  int block_size;    // weights that share d and m; 1 for a dense type
  int stored_bytes;  // of one block
  int code_bits;     // of one weight; codes of 8 bits are signed, shorter ones are not
  int code_offset = 0;
  bool has_min = false;
  int sub_block_size = 32;  // weights that share one set of scales
  SubScales sub_scales = SubScales::kNone;
};

[[nodiscard]] constexpr BlockFormat block_format(WeightType type) {
  switch (type) {
    case WeightType::kF32: return {"F32", 1, 4, 32};
    case WeightType::kF16: return {"F16", 1, 2, 16};
    case WeightType::kBF16: return {"BF16", 1, 2, 16};
    case WeightType::kQ8_0: return {"Q8_0", 32, 34, 8};
    case WeightType::kQ4_0: return {"Q4_0", 32, 18, 4, 8};
    case WeightType::kQ4_1: return {"Q4_1", 32, 20, 4, 0, true};
    case WeightType::kQ5_0: return {"Q5_0", 32, 22, 5, 16};
    case WeightType::kQ5_1: return {"Q5_1", 32, 24, 5, 0, true};
    case WeightType::kQ4K: return {"Q4_K", 256, 144, 4, 0, true, 32, SubScales::kUnsigned6};
    case WeightType::kQ5K: return {"Q5_K", 256, 176, 5, 0, true, 32, SubScales::kUnsigned6};
    case WeightType::kQ6K: return {"Q6_K", 256, 210, 6, 32, false, 16, SubScales::kSigned8};
  }
  return {"unknown", 1, 0, 0};
}

[[nodiscard]] constexpr bool is_dense(WeightType type) {
  return block_format(type).block_size == 1;
}

}  // namespace heddle
