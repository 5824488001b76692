#include "ops/linear/format/block_codec.h"

#include <cstring>

namespace heddle {

void block_values(WeightType type, const Block& block, float* values) {
  const BlockFormat format = block_format(type);
  float scale = to_float(block.d), min = to_float(block.m);
  for (int k = 0; k < format.block_size; ++k) {
    if (format.sub_scales != SubScales::kNone && k % format.sub_block_size == 0) {
      const auto sub = static_cast<size_t>(k / format.sub_block_size);
      const bool is_signed = format.sub_scales == SubScales::kSigned8;
      const int sub_scale =
          is_signed ? static_cast<int8_t>(block.sub_scales[sub]) : block.sub_scales[sub];
      scale = to_float(block.d) * static_cast<float>(sub_scale);
      min = -(to_float(block.m) * static_cast<float>(block.sub_mins[sub]));
    }
    const uint8_t bits = block.codes[size_t(k)];
    const int code = format.code_bits == 8 ? static_cast<int8_t>(bits) : bits - format.code_offset;
    const float product = scale * static_cast<float>(code);
    values[k] = format.has_min ? product + min : product;
  }
}

float dense_value(WeightType type, const std::byte* stored) {
  if (type == WeightType::kF32) {
    float value;
    std::memcpy(&value, stored, sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, stored, sizeof(bits));
  return type == WeightType::kF16 ? to_float(half{bits}) : to_float(bfloat16{bits});
}

}  // namespace heddle
