// The product of weights in blocks and of rows rounded to 8 bits, for files that Highway compiles
// once per target. Sums within a sub-block are of integers, so exact; from sub-block to sub-block
// every (row, output) pair is one chain of multiply-adds. So no tile and no instruction set changes
// its bits. Include inside such a file, after hwy/highway.h.

#if defined(HEDDLE_LINEAR_INT8_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_LINEAR_INT8_TILE_INL_H_
#undef HEDDLE_LINEAR_INT8_TILE_INL_H_
#else
#define HEDDLE_LINEAR_INT8_TILE_INL_H_
#endif

#include <utility>

#include <hwy/highway.h>

#include "core/math.h"
#include "ops/linear/cpu/column-inl.h"
#include "ops/linear/cpu/int8_rows.h"
#include "ops/linear/cpu/linear_kernels.h"
#include "ops/linear/cpu/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::linear::HWY_NAMESPACE {

using IntVec = hn::Vec<I32>;
using WordVec = hn::Vec<U32>;

// Rows of a tile: two accumulators of each vector are in registers.
constexpr int kInt8Rows = kLanes == 16 ? 6 : kLanes == 8 ? 2 : 1;
constexpr int64_t kInt8Weights = 256;  // of one output in a panel: 8 KB with AVX-512

/// Weights of kPanelWidth outputs taken apart.
struct Int8Panel {
  alignas(64) uint32_t codes[kInt8Weights / 4 * kPanelWidth];        // of 4 weights, 8 bits each
  alignas(64) float scales[kInt8Weights / kInt8Half * kPanelWidth];  // of each sub-block
  alignas(64) float mins[kInt8Weights / kInt8Block * kPanelWidth];   // where the format has them
};

/// What a tile has to know of the format.
struct Int8Format {
  int sub_block = 32;  // weights that share a scale
  int offset = 0;      // of the codes in a panel
  bool has_min = false;
};

constexpr Int8Format int8_format(WeightType type) {
  const BlockFormat format = block_format(type);
  const int offset = format.code_bits == 8 ? 128 : format.code_offset;
  return {format.sub_block_size, offset, format.has_min};
}

/// sum + the products of the four bytes in each lane, those of `codes` from 0 to 255, those of `x`
/// from -127 to 127.
template <bool kVnni>
HWY_INLINE IntVec add_products(WordVec codes, WordVec x, IntVec sum) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (kVnni) {  // Highway has this for a target of its own, which is not compiled
    asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(codes.raw), "v"(x.raw));
    return sum;
  }
#endif
  const I32 d;
  const auto bytes = hn::BitCast(d, x);
#if HWY_ARCH_X86  // pairs of 16 bits: the even bytes, then the odd ones
  const hn::Repartition<int16_t, I32> d16;
  const auto low = hn::Set(U32(), 0x00ff00ffu);
  const auto x16 = hn::BitCast(d16, bytes);
  IntVec unused = hn::Zero(d);
  sum = hn::ReorderWidenMulAccumulate(d, hn::BitCast(d16, hn::And(codes, low)),
                                      hn::ShiftRight<8>(hn::ShiftLeft<8>(x16)), sum, unused);
  return hn::ReorderWidenMulAccumulate(d, hn::BitCast(d16, hn::And(hn::ShiftRight<8>(codes), low)),
                                       hn::ShiftRight<8>(x16), sum, unused);
#else
  const auto low = hn::Set(U32(), 0xffu);
  const auto product = [&](auto code, auto value) {
    return hn::Mul(hn::BitCast(d, hn::And(code, low)), hn::ShiftRight<24>(value));
  };
  sum = hn::Add(sum, product(codes, hn::ShiftLeft<24>(bytes)));
  sum = hn::Add(sum, product(hn::ShiftRight<8>(codes), hn::ShiftLeft<16>(bytes)));
  sum = hn::Add(sum, product(hn::ShiftRight<16>(codes), hn::ShiftLeft<8>(bytes)));
  return hn::Add(sum, product(hn::ShiftRight<24>(codes), bytes));
#endif
}

/// Takes the weights [k, k + count) of kLanes outputs of a group apart, for vector v of the panel.
template <WeightType kType>
HWY_INLINE void take_column_apart(const uint8_t* group, int lane, int64_t k, int64_t count,
                                  int64_t prefetch_distance, int v, Int8Panel& panel) {
  constexpr BlockFormat kFormat = block_format(kType);
  constexpr PackedLayout kLayout(kType);
  Column<kType> column;
  uint32_t* codes = panel.codes + v * kLanes;
  float* scales = panel.scales + v * kLanes;
  float* mins = panel.mins + v * kLanes;
  for (const int64_t end = k + count; k < end; k += kFormat.sub_block_size) {
    const auto sub = static_cast<int>(k % kFormat.block_size / kFormat.sub_block_size);
    const uint8_t* block = group + k / kFormat.block_size * kLayout.block_bytes;
    if (sub == 0 && lane == 0) prefetch_block(block, prefetch_distance, kLayout.block_bytes);
    column.open(block, sub, lane);
    hn::Store(column.scale[0], F32(), scales);
    scales += kPanelWidth;
    if constexpr (kFormat.has_min) {
      hn::Store(column.min, F32(), mins);
      mins += kPanelWidth;
    }
    for (int step = 0; step < Column<kType>::kSteps; ++step, codes += 2 * kPanelWidth) {
      column.load(step);
      hn::Store(column.template codes_of<0>(), U32(), codes);
      hn::Store(column.template codes_of<1>(), U32(), codes + kPanelWidth);
    }
  }
}

template <WeightType kType>
HWY_NOINLINE void take_apart(const LinearTask& t, int64_t group, int64_t k, int64_t count,
                             Int8Panel& panel) {
  const int64_t last_group = (t.num_outputs - 1) / PackedLayout::kGroup;
  for (int v = 0; v < kPanelVecs; ++v) {
    const uint8_t* packed =
        t.packed + smaller(group + v / kGroupVectors, last_group) * t.group_stride;
    take_column_apart<kType>(packed, v % kGroupVectors * kLanes, k, count,
                             kTileGroups * t.group_stride, v, panel);
  }
}

/// y += x panel for kRows rows of x from weight k on. The sums start from zero where k is 0, else
/// from y, which so carries each chain from one panel to the next.
template <int kRows, bool kVnni>
HWY_NOINLINE void int8_tile(const Int8Format& format, const Int8Rows& x, int64_t k, int64_t count,
                            const Int8Panel& panel, float* HWY_RESTRICT y, int64_t y_stride,
                            int64_t num_outputs) {
  Vec sum[kRows][kPanelVecs];
  HWY_UNROLL(16)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(16)
    for (int v = 0; v < kPanelVecs; ++v) {
      sum[r][v] =
          k == 0 ? hn::Zero(F32()) : load_outputs(y + r * y_stride, v * kLanes, num_outputs);
    }
  }
  const int64_t num_blocks = x.in_features / kInt8Block;
  const auto* x_codes = reinterpret_cast<const uint32_t*>(x.codes) + k / 4;
  const float* x_scales = x.scales + k / kInt8Block;
  const int32_t* x_sums = x.sums + k / kInt8Half;
  const int64_t words = x.in_features / 4;
  const uint32_t* codes = panel.codes;
  const float* scales = panel.scales;
  const float* mins = panel.mins;
  const int sub_words = format.sub_block / 4, num_subs = 32 / format.sub_block;
  for (int64_t block = 0; block < count / kInt8Block; ++block, ++x_scales, x_sums += 2) {
    for (int sub = 0; sub < num_subs; ++sub) {
      IntVec exact[kRows][kPanelVecs];
      HWY_UNROLL(16)
      for (int r = 0; r < kRows; ++r) {
        const int32_t* sums = x_sums + r * 2 * num_blocks;
        const int32_t sum_of_x = num_subs == 1 ? sums[0] + sums[1] : sums[sub];
        HWY_UNROLL(16)
        for (int v = 0; v < kPanelVecs; ++v)
          exact[r][v] = hn::Set(I32(), -format.offset * sum_of_x);
      }
      for (int word = 0; word < sub_words; ++word, ++x_codes, codes += kPanelWidth) {
        WordVec weights[kPanelVecs];
        HWY_UNROLL(16)
        for (int v = 0; v < kPanelVecs; ++v) weights[v] = hn::Load(U32(), codes + v * kLanes);
        HWY_UNROLL(16)
        for (int r = 0; r < kRows; ++r) {
          const auto four = hn::Set(U32(), x_codes[r * words]);
          HWY_UNROLL(16)
          for (int v = 0; v < kPanelVecs; ++v)
            exact[r][v] = add_products<kVnni>(weights[v], four, exact[r][v]);
        }
      }
      HWY_UNROLL(16)
      for (int r = 0; r < kRows; ++r) {
        const auto x_scale = hn::Set(F32(), x_scales[r * num_blocks]);
        HWY_UNROLL(16)
        for (int v = 0; v < kPanelVecs; ++v) {
          const auto scaled = hn::Mul(hn::ConvertTo(F32(), exact[r][v]), x_scale);
          sum[r][v] = hn::MulAdd(scaled, hn::Load(F32(), scales + v * kLanes), sum[r][v]);
        }
      }
      scales += kPanelWidth;
    }
    if (!format.has_min) continue;
    HWY_UNROLL(16)
    for (int r = 0; r < kRows; ++r) {
      const int32_t* sums = x_sums + r * 2 * num_blocks;
      const float scaled = static_cast<float>(sums[0] + sums[1]) * x_scales[r * num_blocks];
      HWY_UNROLL(16)
      for (int v = 0; v < kPanelVecs; ++v) {
        sum[r][v] =
            hn::MulAdd(hn::Load(F32(), mins + v * kLanes), hn::Set(F32(), scaled), sum[r][v]);
      }
    }
    mins += kPanelWidth;
  }
  HWY_UNROLL(16)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(16)
    for (int v = 0; v < kPanelVecs; ++v)
      store_outputs(sum[r][v], y + r * y_stride, v * kLanes, num_outputs);
  }
}

using Int8Tile = void (*)(const Int8Format&, const Int8Rows&, int64_t, int64_t, const Int8Panel&,
                          float*, int64_t, int64_t);

template <bool kVnni, int... kRowsMinus1>
HWY_INLINE Int8Tile int8_tile_of(int64_t rows, std::integer_sequence<int, kRowsMinus1...>) {
  static constexpr Int8Tile kTiles[] = {&int8_tile<kRowsMinus1 + 1, kVnni>...};
  return kTiles[rows - 1];
}
HWY_INLINE Int8Tile int8_tile_for(int64_t rows, bool vnni) {
  constexpr auto kAllRows = std::make_integer_sequence<int, kInt8Rows>();
  if (HWY_TARGET == HWY_AVX3 && vnni) return int8_tile_of<HWY_TARGET == HWY_AVX3>(rows, kAllRows);
  return int8_tile_of<false>(rows, kAllRows);
}

/// All rows of the task, panel by panel: a panel of weights is taken apart once for all rows.
template <WeightType kType>
HWY_NOINLINE void run_int8(const LinearTask& t, bool vnni) {
  constexpr Int8Format kFormat = int8_format(kType);
  Int8Panel panel;
  const int64_t tiles = ceil_div(t.num_rows, kInt8Rows);
  for (int64_t output = 0; output < t.num_outputs; output += kPanelWidth) {
    for (int64_t k = 0; k < t.in_features; k += kInt8Weights) {
      const int64_t count = smaller(kInt8Weights, t.in_features - k);
      if (t.ahead != nullptr) t.ahead->step();
      take_apart<kType>(t, output / PackedLayout::kGroup, k, count, panel);
      for (int64_t tile = 0; tile < tiles; ++tile) {  // tiles of even heights
        const int64_t row = t.num_rows * tile / tiles, rows = t.num_rows * (tile + 1) / tiles - row;
        int8_tile_for(rows, vnni)(kFormat, t.int8_x.from(row), k, count, panel,
                                  t.y + row * t.y_stride + output, t.y_stride,
                                  t.num_outputs - output);
      }
    }
  }
}

/// Rounds a block of 32: the code of its largest magnitude is 127 or -127. Where a number is not
/// finite, the scale is NaN; where the scale would be no normal number, the block is zeros.
HWY_INLINE void round_block(const float* HWY_RESTRICT x, int8_t* HWY_RESTRICT codes, float* scale,
                            int32_t* sums) {
  constexpr int kVectors = kInt8Block / kLanes, kHalf = kVectors / 2;
  const F32 d;
  const I32 d32;
  Vec values[kVectors];
  Vec largest = hn::Zero(d), faults = hn::Zero(d);
  HWY_UNROLL(8)
  for (int v = 0; v < kVectors; ++v) {
    values[v] = hn::LoadU(d, x + v * kLanes);
    largest = hn::Max(largest, hn::Abs(values[v]));
    faults = hn::Add(faults, hn::Mul(values[v], hn::Zero(d)));  // 0, or NaN
  }
  const float most = hn::GetLane(hn::MaxOfLanes(d, largest));
  const float fault = hn::GetLane(hn::SumOfLanes(d, faults));
  const float step = most / 127.0f;
  // A block with a number that is not finite has codes of zero, too: its scale says so.
  const bool is_zero = !(step >= 0x1p-126f) || fault != 0.0f;
  const auto kept = hn::BitCast(d, hn::Set(d32, is_zero ? 0 : -1));
  const auto inverse = hn::Set(d, is_zero ? 0.0f : 1.0f / step);
  *scale = (is_zero ? 0.0f : step) + fault;
  alignas(64) int8_t plain[kInt8Block];
  HWY_UNROLL(2)
  for (int half = 0; half < 2; ++half) {
    IntVec sum = hn::Zero(d32);
    HWY_UNROLL(4)
    for (int i = 0; i < kHalf; ++i) {
      const int v = half * kHalf + i;
      const auto code = hn::NearestInt(hn::And(hn::Mul(values[v], inverse), kept));
      const hn::Rebind<int8_t, F32> d8;
      hn::StoreU(hn::DemoteTo(d8, code), d8, plain + v * kLanes);
      sum = hn::Add(sum, code);
    }
    sums[half] = hn::GetLane(hn::SumOfLanes(d32, sum));
  }
  for (int i = 0; i < kInt8Block; i += 8) {
    const uint64_t bytes = load_eight(reinterpret_cast<const uint8_t*>(plain) + i);
    store_eight(reinterpret_cast<uint8_t*>(codes) + i, even_bytes(bytes) | even_bytes(bytes >> 8)
                                                                               << 32);
  }
}

}  // namespace heddle::cpu::linear::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
