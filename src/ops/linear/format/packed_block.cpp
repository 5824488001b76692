#include "ops/linear/format/packed_block.h"

#include <cstring>

#include "ops/linear/format/packed_layout.h"

namespace heddle {
namespace {

constexpr size_t kGroupRows = PackedLayout::kGroup;

constexpr int kLowCodes = 8;  // weights whose low four bits are one word

uint32_t load_word(const std::byte* p) {
  uint32_t word;
  std::memcpy(&word, p, 4);
  return word;
}

}  // namespace

Block read_packed_block(WeightType type, int lane, const std::byte* packed) {
  const BlockFormat format = block_format(type);
  const PackedLayout layout(type);
  const auto i = static_cast<size_t>(lane);
  Block block{};
  std::memcpy(&block.d, packed + 2 * i, 2);
  if (format.has_min) std::memcpy(&block.m, packed + layout.mins + 2 * i, 2);
  if (format.sub_scales != SubScales::kNone) {
    for (size_t s = 0; s < size_t(layout.num_sub_blocks); ++s) {
      block.sub_scales[s] = uint8_t(packed[size_t(layout.sub_scales) + s * kGroupRows + i]);
      if (format.has_min)
        block.sub_mins[s] = uint8_t(packed[size_t(layout.sub_mins) + s * kGroupRows + i]);
    }
  }
  if (format.code_bits == 8) {
    for (size_t k = 0; k < size_t(format.block_size); ++k) {
      block.codes[k] = uint8_t(packed[size_t(layout.codes) + k * kGroupRows + i]);
    }
    return block;
  }
  const auto add = [&](int k, uint32_t bits) {
    block.codes[size_t(k)] |= static_cast<uint8_t>(bits);
  };
  // The words of the output, as write_codes() of pack_group.cpp has them.
  constexpr int kWordBytes = static_cast<int>(kGroupRows) * 4;
  const int high_bits = format.code_bits - 4;
  const std::byte* word = packed + layout.codes + lane * 4;
  for (int chunk = 0; chunk < format.block_size; chunk += layout.chunk_size) {
    for (int k = 0; k < layout.chunk_size; k += kLowCodes) {
      const uint32_t low = load_word(word + k / kLowCodes * kWordBytes);
      for (int n = 0; n < kLowCodes; ++n) add(chunk + k + n, low >> (4 * n) & 15);
    }
    if (high_bits > 0) {
      const uint32_t high = load_word(word + layout.chunk_size / kLowCodes * kWordBytes);
      const uint32_t mask = (1u << high_bits) - 1;
      for (int k = 0; k < layout.chunk_size; ++k) {
        add(chunk + k, (high >> high_bits_position(k, high_bits) & mask) << 4);
      }
    }
    word += layout.chunk_bytes;
  }
  return block;
}

}  // namespace heddle
