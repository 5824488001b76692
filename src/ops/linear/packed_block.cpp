#include "ops/linear/packed_block.h"

#include <cstring>

#include "ops/linear/packed_layout.h"

namespace heddle {
namespace {

constexpr size_t kGroup = PackedLayout::kGroup;

constexpr int kLowCodes = 8;  // weights whose low four bits are one word

/// The 32-bit words of one output, the single description of the planes: calls
/// low(byte offset of the word in the block, first of its weights) for those of the low four bits,
/// high(the same) for those with the high bits of a whole chunk.
template <class Low, class High>
void for_each_word(const BlockFormat& format, const PackedLayout& layout, int lane, const Low& low,
                   const High& high) {
  constexpr int kWordBytes = static_cast<int>(kGroup) * 4;
  int word = layout.codes + lane * 4;
  for (int chunk = 0; chunk < format.block_size; chunk += layout.chunk_size) {
    for (int k = 0; k < layout.chunk_size; k += kLowCodes) {
      low(word + k / kLowCodes * kWordBytes, chunk + k);
    }
    if (format.code_bits > 4) high(word + layout.chunk_size / kLowCodes * kWordBytes, chunk);
    word += layout.chunk_bytes;
  }
}

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
      block.sub_scales[s] = uint8_t(packed[size_t(layout.sub_scales) + s * kGroup + i]);
      if (format.has_min)
        block.sub_mins[s] = uint8_t(packed[size_t(layout.sub_mins) + s * kGroup + i]);
    }
  }
  if (format.code_bits == 8) {
    for (size_t k = 0; k < size_t(format.block_size); ++k) {
      block.codes[k] = uint8_t(packed[size_t(layout.codes) + k * kGroup + i]);
    }
    return block;
  }
  const auto add = [&](int k, uint32_t bits) {
    block.codes[size_t(k)] |= static_cast<uint8_t>(bits);
  };
  const int high_bits = format.code_bits - 4;
  for_each_word(
      format, layout, lane,
      [&](int word, int k) {
        const uint32_t joined = load_word(packed + word);
        for (int i = 0; i < kLowCodes; ++i) add(k + i, joined >> (4 * i) & 15);
      },
      [&](int word, int k) {
        const uint32_t joined = load_word(packed + word), mask = (1u << high_bits) - 1;
        for (int i = 0; i < layout.chunk_size; ++i) {
          add(k + i, (joined >> high_bits_position(i, high_bits) & mask) << 4);
        }
      });
  return block;
}

}  // namespace heddle
