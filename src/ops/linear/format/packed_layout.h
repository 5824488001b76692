#pragma once

#include <cstdint>

#include "core/math.h"
#include "ops/linear/format/block_format.h"

namespace heddle {

/// The packed form of a weight. 16 consecutive outputs form a group; "16 x T" below means one T per
/// output of the group, side by side, so that a vector load gives the same item of 16 outputs. A
/// group is the chain of its blocks along k, the groups follow each other, and the outputs that the
/// last group lacks are zeros.
///
/// A block of a quantised format:
///   16 x f16 d; 16 x f16 m where the format has one;
///   [sub-block] 16 x u8 scale, [sub-block] 16 x u8 minimum where the format has them;
///   the codes, in chunks of `chunk_size` weights:
///     8 bits: 16 x i8, one weight each;
///     4 bits: 16 x u32, weight j of 8 in bits 4 j ..;
///     5 bits: four times that for the low bits of 32 weights, then 16 x u32 with their high bits;
///     6 bits: twice that for the low bits of 16 weights, then 16 x u32 with their high bits.
/// High bits stand where a kernel wants them, see high_bits_position().
/// A block of a dense type is one weight: 16 x T.
struct PackedLayout {
  static constexpr int kGroup = 16;

  constexpr explicit PackedLayout(WeightType type) {
    const BlockFormat format = block_format(type);
    const bool dense = is_dense(type);
    num_sub_blocks = dense ? 1 : format.block_size / format.sub_block_size;
    const int scale_bytes = format.sub_scales == SubScales::kNone ? 0 : kGroup * num_sub_blocks;
    mins = dense ? 0 : kGroup * 2;
    sub_scales = mins + (format.has_min ? kGroup * 2 : 0);
    sub_mins = sub_scales + scale_bytes;
    codes = sub_mins + (format.has_min ? scale_bytes : 0);
    chunk_size = format.code_bits == 4   ? 8
                 : format.code_bits == 5 ? 32
                 : format.code_bits == 6 ? 16
                                         : 1;
    chunk_bytes = kGroup * chunk_size * format.code_bits / 8;
    block_bytes = codes + format.block_size / chunk_size * chunk_bytes;
  }

  int num_sub_blocks;                     // of a block
  int mins, sub_scales, sub_mins, codes;  // offsets of the parts in a block; d is at 0
  int chunk_size, chunk_bytes;
  int block_bytes;
};

/// Where the first high bit of weight k of a chunk stands in its word, of `bits` (1 or 2) each. A
/// kernel takes 8 weights at a time; it spreads the low bits of the even and of the odd ones over
/// the bytes of one word each. The high bits of weight 2 b + odd then belong on bit 4 of byte b:
/// there those of the first even ones stand, the others follow in the order in which rotating the
/// word to the right brings them there.
[[nodiscard]] constexpr int high_bits_position(int k, int bits) {
  const int run = k / 8, byte = k % 8 / 2, odd = k % 2;
  return (8 * byte + 4 + (2 * run + odd) * bits) % 32;
}

[[nodiscard]] constexpr int64_t num_groups(int64_t out_features) {
  // Not rounded up by ceil_div: out_features may be any.
  return out_features / PackedLayout::kGroup + (out_features % PackedLayout::kGroup != 0);
}
/// Bytes of one group of 16 outputs.
[[nodiscard]] constexpr int64_t group_bytes(WeightType type, int64_t in_features) {
  return in_features / block_format(type).block_size * PackedLayout(type).block_bytes;
}

static_assert(PackedLayout(WeightType::kQ4_1).block_bytes == 16 * 20);
static_assert(PackedLayout(WeightType::kQ6K).block_bytes == 16 * 210);
static_assert(PackedLayout(WeightType::kQ4K).block_bytes ==
              16 * 148);  // 6-bit scales take a byte here

}  // namespace heddle
