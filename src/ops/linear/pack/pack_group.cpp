#include "ops/linear/pack/pack_group.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <hwy/highway.h>

#include "ops/linear/format/packed_layout.h"
#include "ops/linear/format/stored_block.h"

// A group has the same item of 16 rows side by side: vectors of 16 bytes of some rows are
// transposed. Compiled once, for any CPU.

namespace heddle {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr int kGroup = PackedLayout::kGroup, kVectorBytes = 16;

template <class T>
using Tag = hn::Full128<T>;
template <class T>
using Vector = hn::Vec<Tag<T>>;

template <class T>
Vector<T> load(const void* from) {
  return hn::BitCast(Tag<T>(), hn::LoadU(Tag<uint8_t>(), static_cast<const uint8_t*>(from)));
}
template <class T>
void store(Vector<T> v, void* to) {
  const Tag<uint8_t> bytes;
  hn::StoreU(hn::BitCast(bytes, v), bytes, static_cast<uint8_t*>(to));
}

/// As many rows as a vector has items of T become columns.
template <class T>
void transpose(Vector<T> (&rows)[kVectorBytes / sizeof(T)]) {
  constexpr size_t kNum = kVectorBytes / sizeof(T);
  for (size_t step = 1; step < kNum; step *= 2) {
    Vector<T> mixed[kNum];
    for (size_t i = 0; i < kNum / 2; ++i) {
      mixed[2 * i] = hn::InterleaveLower(Tag<T>(), rows[i], rows[i + kNum / 2]);
      mixed[2 * i + 1] = hn::InterleaveUpper(Tag<T>(), rows[i], rows[i + kNum / 2]);
    }
    std::copy_n(mixed, kNum, rows);
  }
}

/// to[i][lane] = item i of from(lane), of the first num_items of a vector.
template <class T, class From>
void transpose_lanes(const From& from, int num_items, std::byte* to) {
  constexpr int kNum = kVectorBytes / int{sizeof(T)};
  for (int first = 0; first < kGroup; first += kNum) {
    Vector<T> rows[kNum];
    for (int i = 0; i < kNum; ++i) rows[i] = load<T>(from(first + i));
    transpose<T>(rows);
    for (int i = 0; i < num_items; ++i) {
      store<T>(rows[i], to + (i * kGroup + first) * int{sizeof(T)});
    }
  }
}

/// Four words of eight codes each, which have kBits at most. Code 2 i + j of a word begins at bit
/// kBits * j of its byte i.
template <int kBits>
Vector<uint32_t> join_pairs(Vector<uint8_t> first, Vector<uint8_t> second) {
  const auto pairs = [](Vector<uint8_t> codes) {
    const auto two = hn::BitCast(Tag<uint16_t>(), codes);
    return hn::BitCast(Tag<uint8_t>(), hn::Or(two, hn::ShiftRight<8 - kBits>(two)));
  };
  return hn::BitCast(Tag<uint32_t>(), hn::ConcatEven(Tag<uint8_t>(), pairs(second), pairs(first)));
}

/// The word with the high bits of a chunk, as high_bits_position() says, from those of eight codes
/// each.
template <int kBits>
Vector<uint32_t> join_high(const Vector<uint32_t>* of_eight) {
  Vector<uint32_t> word = of_eight[0];
  if constexpr (kBits == 1) {
    word = hn::Or(hn::Or(word, hn::ShiftLeft<2>(of_eight[1])),
                  hn::Or(hn::ShiftLeft<4>(of_eight[2]), hn::ShiftLeft<6>(of_eight[3])));
  } else {
    word = hn::Or(word, hn::ShiftLeft<4>(of_eight[1]));
  }
  return hn::RotateRight<28>(word);
}

/// 32 codes of 4 to 6 bits, from code k on, of four lanes from `first_lane` on.
template <WeightType kType>
void write_codes(const Block* blocks, int first_lane, int k, std::byte* codes) {
  constexpr PackedLayout kLayout(kType);
  constexpr int kHighBits = block_format(kType).code_bits - 4;
  constexpr int kWordBytes = kGroup * 4, kChunkWords = kLayout.chunk_size / 8;
  Vector<uint32_t> low[4], high[4];
  for (int i = 0; i < 4; ++i) {
    const uint8_t* const from = &blocks[first_lane + i].codes[size_t(k)];
    const Vector<uint8_t> first = load<uint8_t>(from), second = load<uint8_t>(from + kVectorBytes);
    const Vector<uint8_t> mask = hn::Set(Tag<uint8_t>(), 15);
    low[i] = join_pairs<4>(hn::And(first, mask), hn::And(second, mask));
    if constexpr (kHighBits > 0) {
      high[i] = join_pairs<kHighBits>(hn::ShiftRight<4>(first), hn::ShiftRight<4>(second));
    }
  }
  transpose<uint32_t>(low);
  if constexpr (kHighBits > 0) transpose<uint32_t>(high);
  for (int j = 0; j < 4; ++j) {
    const int chunk = (k / 8 + j) / kChunkWords, word = (k / 8 + j) % kChunkWords;
    std::byte* const to = codes + chunk * kLayout.chunk_bytes + first_lane * 4;
    store<uint32_t>(low[j], to + word * kWordBytes);
    if constexpr (kHighBits > 0) {
      if (word == 0) {
        store<uint32_t>(join_high<kHighBits>(high + j), to + kChunkWords * kWordBytes);
      }
    }
  }
}

/// A block of a group, of a quantised type.
template <WeightType kType>
void write_blocks(const Block* blocks, std::byte* packed) {
  constexpr BlockFormat kFormat = block_format(kType);
  constexpr PackedLayout kLayout(kType);
  for (int lane = 0; lane < kGroup; ++lane) {
    std::memcpy(packed + 2 * lane, &blocks[lane].d, 2);
    if (kFormat.has_min) std::memcpy(packed + kLayout.mins + 2 * lane, &blocks[lane].m, 2);
  }
  if constexpr (kFormat.sub_scales != SubScales::kNone) {
    transpose_lanes<uint8_t>([&](int lane) { return blocks[lane].sub_scales.data(); },
                             kLayout.num_sub_blocks, packed + kLayout.sub_scales);
    if (kFormat.has_min) {
      transpose_lanes<uint8_t>([&](int lane) { return blocks[lane].sub_mins.data(); },
                               kLayout.num_sub_blocks, packed + kLayout.sub_mins);
    }
  }
  std::byte* const codes = packed + kLayout.codes;
  if constexpr (kFormat.code_bits == 8) {
    for (int k = 0; k < kFormat.block_size; k += kVectorBytes) {
      transpose_lanes<uint8_t>([&](int lane) { return &blocks[lane].codes[size_t(k)]; },
                               kVectorBytes, codes + k * kGroup);
    }
  } else {
    for (int k = 0; k < kFormat.block_size; k += 32) {
      for (int lane = 0; lane < kGroup; lane += 4) write_codes<kType>(blocks, lane, k, codes);
    }
  }
}

template <WeightType kType>
void pack_blocks(int64_t in_features, const std::byte* stored, size_t row_bytes, int num_rows,
                 std::byte* packed) {
  constexpr BlockFormat kFormat = block_format(kType);
  Block blocks[kGroup];
  std::fill(blocks + num_rows, blocks + kGroup, Block{});
  for (int64_t k = 0; k < in_features; k += kFormat.block_size) {
    for (int lane = 0; lane < num_rows; ++lane) {
      read_stored_block(kType, stored + size_t(lane) * row_bytes, blocks[lane]);
    }
    write_blocks<kType>(blocks, packed);
    stored += kFormat.stored_bytes;
    packed += PackedLayout(kType).block_bytes;
  }
}

/// T: as many bytes as a value has.
template <class T>
void pack_values(int64_t in_features, const std::byte* stored, size_t row_bytes, int num_rows,
                 std::byte* packed) {
  constexpr int64_t kNum = kVectorBytes / sizeof(T);
  std::array<std::array<std::byte, kVectorBytes>, kGroup> last{};  // a vector of each row
  for (int64_t k = 0; k < in_features; k += kNum) {
    const int64_t num = std::min(kNum, in_features - k);
    const auto row = [&](int lane) { return stored + size_t(lane) * row_bytes + k * sizeof(T); };
    std::byte* const to = packed + k * kGroup * int64_t{sizeof(T)};
    if (num == kNum && num_rows == kGroup) {
      transpose_lanes<T>(row, kNum, to);
      continue;
    }
    for (int lane = 0; lane < num_rows; ++lane) {
      std::memcpy(last[size_t(lane)].data(), row(lane), size_t(num) * sizeof(T));
    }
    transpose_lanes<T>([&](int lane) { return last[size_t(lane)].data(); }, static_cast<int>(num),
                       to);
  }
}

}  // namespace

void pack_group(WeightType type, int64_t in_features, const std::byte* stored, size_t row_bytes,
                int num_rows, std::byte* packed) {
  const auto pack = [&](auto kernel) { kernel(in_features, stored, row_bytes, num_rows, packed); };
  switch (type) {
    case WeightType::kF32: return pack(pack_values<uint32_t>);
    case WeightType::kF16:
    case WeightType::kBF16: return pack(pack_values<uint16_t>);
    case WeightType::kQ8_0: return pack(pack_blocks<WeightType::kQ8_0>);
    case WeightType::kQ4_0: return pack(pack_blocks<WeightType::kQ4_0>);
    case WeightType::kQ4_1: return pack(pack_blocks<WeightType::kQ4_1>);
    case WeightType::kQ5_0: return pack(pack_blocks<WeightType::kQ5_0>);
    case WeightType::kQ5_1: return pack(pack_blocks<WeightType::kQ5_1>);
    case WeightType::kQ4K: return pack(pack_blocks<WeightType::kQ4K>);
    case WeightType::kQ5K: return pack(pack_blocks<WeightType::kQ5K>);
    case WeightType::kQ6K: return pack(pack_blocks<WeightType::kQ6K>);
  }
}

}  // namespace heddle
