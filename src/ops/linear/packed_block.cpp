#include "ops/linear/packed_block.h"

#include <bit>
#include <cstring>

#include "ops/linear/eight_bytes.h"
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

/// The low four bits of 8 codes, the first one lowest.
uint32_t join_low(const uint8_t* codes) {
  const uint64_t x = load_eight(codes) & in_each_byte(15);
  return even_bytes(x | x >> 4);
}

/// The high bits, kBits each, of the 32 / kBits codes of a chunk.
template <int kBits>
uint32_t join_high(const uint8_t* codes) {
  uint32_t word = 0;
  for (int k = 0; k < 32 / kBits; k += 8) {
    const uint64_t high = load_eight(codes + k) >> 4 & in_each_byte(15);
    // Codes k, k + 2, .. stand 8 bits apart, as their bytes do.
    word |= std::rotl(even_bytes(high), high_bits_position(k, kBits));
    word |= std::rotl(even_bytes(high >> 8), high_bits_position(k + 1, kBits));
  }
  return word;
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
  const auto store = [&](int word, uint32_t joined) { std::memcpy(packed + word, &joined, 4); };
  for_each_word(
      format, layout, lane,
      [&](int word, int k) { store(word, join_low(&block.codes[size_t(k)])); },
      [&](int word, int k) {
        const uint8_t* const codes = &block.codes[size_t(k)];
        store(word, format.code_bits == 5 ? join_high<1>(codes) : join_high<2>(codes));
      });
}

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
