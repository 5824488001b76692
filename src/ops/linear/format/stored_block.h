#pragma once

#include <cstring>

#include "ops/linear/format/block_codec.h"
#include "ops/linear/format/eight_bytes.h"

// The stored blocks are those of ggml (little-endian, no padding). Every layout is written down
// where it is read. What depends on the format is inlined, so that a caller whose type is a
// constant has no branches.

namespace heddle {
namespace stored_block {

using Bytes = const uint8_t*;

[[nodiscard]] inline half read_half(Bytes p) {
  half value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

/// Nibbles of n bytes: the low ones are the codes [0, n), the high ones the codes [n, 2 n).
[[gnu::always_inline]] inline void read_nibbles(Bytes p, int n, uint8_t* codes) {
  for (int i = 0; i < n; i += 8) {
    const uint64_t bytes = load_eight(p + i);
    store_eight(codes + i, bytes & in_each_byte(15));
    store_eight(codes + n + i, bytes >> 4 & in_each_byte(15));
  }
}

/// Bits on top of the low four bits of codes: those at `position` and above, as `mask` has them, of
/// byte i belong to code i, of n.
[[gnu::always_inline]] inline void add_high_bits(Bytes p, int n, int position, uint8_t mask,
                                                 uint8_t* codes) {
  for (int i = 0; i < n; i += 8) {
    const uint64_t bits = load_eight(p + i) >> position & in_each_byte(mask);
    store_eight(codes + i, load_eight(codes + i) | bits << 4);
  }
}

/// Blocks of 32: d, then m, a word with the fifth bit of each code, and the nibbles, as far as the
/// format has them.
[[gnu::always_inline]] inline void read_block_of_32(const BlockFormat& format, Bytes p,
                                                    Block& block) {
  block.d = read_half(p);
  p += 2;
  if (format.has_min) {
    block.m = read_half(p);
    p += 2;
  }
  if (format.code_bits == 8) {
    std::memcpy(block.codes.data(), p, 32);
    return;
  }
  if (format.code_bits == 4) {
    read_nibbles(p, 16, block.codes.data());
    return;
  }
  read_nibbles(p + 4, 16, block.codes.data());
  for (int i = 0; i < 4; ++i) {
    uint8_t* const codes = &block.codes[size_t(8 * i)];
    store_eight(codes, load_eight(codes) | a_bit_each(p[i]) << 4);
  }
}

/// Twelve bytes that hold eight 6-bit scales and eight 6-bit minima: the first four of each whole
/// in bytes 0-3 and 4-7; of the others the low four bits in bytes 8-11 and the high two on top of
/// bytes 0-3 and 4-7.
inline void read_6_bit_scales(Bytes p, Block& block) {
  for (size_t j = 0; j < 4; ++j) {
    block.sub_scales[j] = p[j] & 63;
    block.sub_mins[j] = p[j + 4] & 63;
    block.sub_scales[j + 4] = static_cast<uint8_t>((p[j + 8] & 15) | (p[j] >> 6 << 4));
    block.sub_mins[j + 4] = static_cast<uint8_t>((p[j + 8] >> 4) | (p[j + 4] >> 6 << 4));
  }
}

/// d, dmin, 12 bytes of scales, with five bits 32 bytes of fifth bits (bit s of byte i: weight i of
/// sub-block s), then for each pair of sub-blocks 32 bytes of nibbles.
[[gnu::always_inline]] inline void read_q4k_or_q5k(const BlockFormat& format, Bytes p,
                                                   Block& block) {
  block.d = read_half(p);
  block.m = read_half(p + 2);
  read_6_bit_scales(p + 4, block);
  p += 16;
  const Bytes high = p;
  if (format.code_bits == 5) p += 32;
  for (int pair = 0; pair < 4; ++pair)
    read_nibbles(p + 32 * pair, 32, &block.codes[size_t(64 * pair)]);
  if (format.code_bits == 5) {
    for (int sub = 0; sub < 8; ++sub) {
      add_high_bits(high, 32, sub, 1, &block.codes[size_t(32 * sub)]);
    }
  }
}

/// 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 int8 scales, d. Each half of the block
/// has 64 bytes of nibbles and 32 of pairs: pair r of byte i belongs to weight 32 r + i of the
/// half.
[[gnu::always_inline]] inline void read_q6k(Bytes p, Block& block) {
  for (int part = 0; part < 2; ++part) {
    uint8_t* codes = &block.codes[size_t(128 * part)];
    const Bytes high = p + 128 + 32 * part;
    read_nibbles(p + 64 * part, 64, codes);
    for (int r = 0; r < 4; ++r) add_high_bits(high, 32, 2 * r, 3, codes + 32 * r);
  }
  std::memcpy(block.sub_scales.data(), p + 192, 16);
  block.d = read_half(p + 208);
}

}  // namespace stored_block

/// Reads one block as a GGUF file holds it; what its format does not have is left as it is in
/// `block`. `type` must not be dense.
[[gnu::always_inline]] inline void read_stored_block(WeightType type, const std::byte* stored,
                                                     Block& block) {
  const BlockFormat format = block_format(type);
  const auto* const p = reinterpret_cast<stored_block::Bytes>(stored);
  switch (format.sub_scales) {
    case SubScales::kNone: return stored_block::read_block_of_32(format, p, block);
    case SubScales::kUnsigned6: return stored_block::read_q4k_or_q5k(format, p, block);
    case SubScales::kSigned8: return stored_block::read_q6k(p, block);
  }
}

}  // namespace heddle
