#include "ops/linear/packed_block.h"

#include <cstring>

#include "ops/linear/packed_layout.h"

namespace heddle {
namespace {

constexpr size_t kGroup = PackedLayout::kGroup;

/// Where codes stand in the 32-bit words of one output: the single description of the planes. Calls
/// visit(byte offset of the word in the block, bit in the word, weight, first bit of its code,
/// number of bits).
template <class Visit>
void for_each_field(const BlockFormat& format, const PackedLayout& layout, int lane, Visit visit) {
  const int high_bits = format.code_bits - 4, word_bytes = static_cast<int>(kGroup) * 4;
  int word = layout.codes + lane * 4;
  for (int chunk = 0; chunk < format.block_size; chunk += layout.chunk_size) {
    const int high_word = word + layout.chunk_size / 8 * word_bytes;
    for (int i = 0; i < layout.chunk_size; ++i) {
      visit(word + i / 8 * word_bytes, i % 8 * 4, chunk + i, 0, 4);
      if (high_bits > 0)
        visit(high_word, high_bits_position(i, high_bits), chunk + i, 4, high_bits);
    }
    word += layout.chunk_bytes;
  }
}

uint32_t load_word(const std::byte* p) {
  uint32_t word;
  std::memcpy(&word, p, 4);
  return word;
}

}  // namespace

void write_packed_block(WeightType type, const Block& block, int lane, std::byte* packed) {
  const BlockFormat format = block_format(type);
  const PackedLayout layout(type);
  const auto i = static_cast<size_t>(lane);
  std::memcpy(packed + 2 * i, &block.d, 2);
  if (format.has_min) std::memcpy(packed + layout.mins + 2 * i, &block.m, 2);
  if (format.sub_scales != SubScales::kNone) {
    for (size_t s = 0; s < size_t(layout.num_sub_blocks); ++s) {
      packed[size_t(layout.sub_scales) + s * kGroup + i] = std::byte{block.sub_scales[s]};
      if (format.has_min)
        packed[size_t(layout.sub_mins) + s * kGroup + i] = std::byte{block.sub_mins[s]};
    }
  }
  if (format.code_bits == 8) {
    for (size_t k = 0; k < size_t(format.block_size); ++k) {
      packed[size_t(layout.codes) + k * kGroup + i] = std::byte{block.codes[k]};
    }
    return;
  }
  for (int offset = layout.codes; offset < layout.block_bytes; offset += 4 * int{kGroup}) {
    std::memset(packed + offset + 4 * lane, 0, 4);
  }
  for_each_field(format, layout, lane, [&](int word, int bit, int k, int first, int bits) {
    const uint32_t value = (uint32_t{block.codes[size_t(k)]} >> first) & ((1u << bits) - 1);
    const uint32_t joined = load_word(packed + word) | value << bit;
    std::memcpy(packed + word, &joined, 4);
  });
}

Block read_packed_block(WeightType type, int lane, const std::byte* packed) {
  const BlockFormat format = block_format(type);
  const PackedLayout layout(type);
  const auto i = static_cast<size_t>(lane);
  Block block;
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
  for_each_field(format, layout, lane, [&](int word, int bit, int k, int first, int bits) {
    const uint32_t value = (load_word(packed + word) >> bit) & ((1u << bits) - 1);
    block.codes[size_t(k)] |= static_cast<uint8_t>(value << first);
  });
  return block;
}

}  // namespace heddle
