#include "packed_block.h"

#include <cstring>

#include "packed_layout.h"

namespace heddle {
namespace {

constexpr size_t kGroup = PackedLayout::kGroup;

/// Collects `bits` bits of each of n codes, from bit `shift` on, in one word: code j at bit j *
/// bits.
uint32_t join_bits(const uint8_t* codes, int n, int shift, int bits) {
  uint32_t word = 0;
  for (int j = 0; j < n; ++j)
    word |= ((uint32_t{codes[j]} >> shift) & ((1u << bits) - 1)) << (j * bits);
  return word;
}

void split_bits(uint32_t word, uint8_t* codes, int n, int shift, int bits) {
  for (int j = 0; j < n; ++j) {
    codes[j] |= static_cast<uint8_t>(((word >> (j * bits)) & ((1u << bits) - 1)) << shift);
  }
}

/// Calls visit(byte offset of the word in the block, first weight, number of weights, first bit,
/// bits per weight) for every 32-bit word that holds codes of one output: the single description of
/// the planes.
template <class Visit>
void for_each_word(const BlockFormat& format, const PackedLayout& layout, int lane, Visit visit) {
  const int word_bytes = static_cast<int>(kGroup) * 4;
  int offset = layout.codes + lane * 4;
  for (int chunk = 0; chunk < format.block_size; chunk += layout.chunk_size) {
    for (int k = chunk; k < chunk + layout.chunk_size; k += 8, offset += word_bytes)
      visit(offset, k, 8, 0, 4);
    if (format.code_bits > 4) {
      visit(offset, chunk, layout.chunk_size, 4, format.code_bits - 4);
      offset += word_bytes;
    }
  }
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
  for_each_word(format, layout, lane, [&](int offset, int k, int n, int shift, int bits) {
    const uint32_t word = join_bits(&block.codes[size_t(k)], n, shift, bits);
    std::memcpy(packed + offset, &word, 4);
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
  for_each_word(format, layout, lane, [&](int offset, int k, int n, int shift, int bits) {
    uint32_t word;
    std::memcpy(&word, packed + offset, 4);
    split_bits(word, &block.codes[size_t(k)], n, shift, bits);
  });
  return block;
}

}  // namespace heddle
