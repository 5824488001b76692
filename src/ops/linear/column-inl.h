// Decoding of packed weights into f32 vectors, for files that Highway compiles once per target.
// Include inside such a file, after hwy/highway.h.

#if defined(HEDDLE_LINEAR_COLUMN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_LINEAR_COLUMN_INL_H_
#undef HEDDLE_LINEAR_COLUMN_INL_H_
#else
#define HEDDLE_LINEAR_COLUMN_INL_H_
#endif

#include <hwy/highway.h>

#include "cpu/vec-inl.h"
#include "packed_layout.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::CappedTag<float, PackedLayout::kGroup>;
using I32 = hn::Rebind<int32_t, F32>;
using U32 = hn::Rebind<uint32_t, F32>;
using Vec = hn::Vec<F32>;

constexpr int kLanes =
    HWY_LANES(float) < PackedLayout::kGroup ? HWY_LANES(float) : PackedLayout::kGroup;
constexpr int kParts = PackedLayout::kGroup / kLanes;  // vectors of one group

/// The number that each 4-bit code in the low bits of `words` stands for; the bits above are
/// ignored.
template <int kOffset>
HWY_INLINE Vec nibble_values(hn::Vec<U32> words) {
#if HWY_TARGET <= HWY_AVX3
  // One lookup in a register replaces mask, subtraction and conversion. The instruction ignores the
  // high bits of its indices, which Highway's checked way to make them does not allow for.
  alignas(64) static constexpr float kValues[16] = {
      0 - kOffset,  1 - kOffset,  2 - kOffset,  3 - kOffset, 4 - kOffset,  5 - kOffset,
      6 - kOffset,  7 - kOffset,  8 - kOffset,  9 - kOffset, 10 - kOffset, 11 - kOffset,
      12 - kOffset, 13 - kOffset, 14 - kOffset, 15 - kOffset};
  return hn::TableLookupLanes(hn::Load(F32(), kValues), hn::Indices512<float>{words.raw});
#else
  auto codes = hn::BitCast(I32(), hn::And(words, hn::Set(U32(), 15u)));
  if constexpr (kOffset != 0) codes = hn::Sub(codes, hn::Set(I32(), kOffset));
  return hn::ConvertTo(F32(), codes);
#endif
}

/// kLanes outputs of a group, from output `lane` on: gives their weights of one k after the other.
/// Usage: open() a sub-block, load() each run of 8 weights of it in ascending order, take
/// weight<0>() to weight<7>().
template <WeightType kType>
struct Column {
  static constexpr BlockFormat kFormat = block_format(kType);
  static constexpr PackedLayout kLayout{kType};
  static constexpr int kSteps = kFormat.sub_block_size / 8;  // runs of 8 weights in a sub-block
  static constexpr int kSubBytes = PackedLayout::kGroup * kFormat.sub_block_size *
                                   kFormat.code_bits / 8;  // codes of a sub-block
  static constexpr int kWordBytes = PackedLayout::kGroup * 4;

  Vec scale, min;
  hn::Vec<U32> low, high;
  const uint8_t* codes;  // of the sub-block, at this column's first output

  HWY_INLINE void open(const uint8_t* block, int sub, int lane) {
    const F32 d;
    constexpr int kCodeLane = kFormat.code_bits == 8 ? 1 : 4;
    codes = block + kLayout.codes + sub * kSubBytes + lane * kCodeLane;
    scale = load_f32(d, reinterpret_cast<const half*>(block) + lane);
    if constexpr (kFormat.has_min) {
      min = load_f32(d, reinterpret_cast<const half*>(block + kLayout.mins) + lane);
    }
    const int item = sub * PackedLayout::kGroup + lane;
    if constexpr (kFormat.sub_scales == SubScales::kUnsigned6) {
      const hn::Rebind<uint8_t, F32> u8;
      const auto s = hn::PromoteTo(I32(), hn::LoadU(u8, block + kLayout.sub_scales + item));
      const auto m = hn::PromoteTo(I32(), hn::LoadU(u8, block + kLayout.sub_mins + item));
      scale = hn::Mul(scale, hn::ConvertTo(d, s));
      min = hn::Neg(hn::Mul(min, hn::ConvertTo(d, m)));
    }
    if constexpr (kFormat.sub_scales == SubScales::kSigned8) {
      const hn::Rebind<int8_t, F32> i8;
      const auto* p = reinterpret_cast<const int8_t*>(block + kLayout.sub_scales + item);
      scale = hn::Mul(scale, hn::ConvertTo(d, hn::PromoteTo(I32(), hn::LoadU(i8, p))));
    }
  }

  HWY_INLINE void load(int step) {
    if constexpr (kFormat.code_bits < 8) {
      low = hn::LoadU(U32(), reinterpret_cast<const uint32_t*>(codes + step * kWordBytes));
    }
    if constexpr (kFormat.code_bits == 5 || kFormat.code_bits == 6) {
      const auto all =
          hn::LoadU(U32(), reinterpret_cast<const uint32_t*>(codes + kSteps * kWordBytes));
      high = hn::ShiftRightSame(all, 8 * (kFormat.code_bits - 4) * step);
    }
    if constexpr (kFormat.code_bits == 8) step_codes = codes + step * 8 * PackedLayout::kGroup;
  }

  template <int kWeight>
  HWY_INLINE Vec weight() const {
    const auto q = code_values<kWeight>();
    if constexpr (kFormat.has_min) return hn::MulAdd(scale, q, min);
    return hn::Mul(scale, q);
  }

 private:
  const uint8_t* step_codes;

  template <int kWeight>
  HWY_INLINE Vec code_values() const {
    if constexpr (kFormat.code_bits == 8) {
      const hn::Rebind<int8_t, F32> i8;
      const auto* p = reinterpret_cast<const int8_t*>(step_codes + kWeight * PackedLayout::kGroup);
      return hn::ConvertTo(F32(), hn::PromoteTo(I32(), hn::LoadU(i8, p)));
    } else if constexpr (kFormat.code_bits == 4) {
      return nibble_values<kFormat.code_offset>(hn::ShiftRight<4 * kWeight>(low));
    } else {
      constexpr int kHighBits = kFormat.code_bits - 4;
      constexpr int kShift = kHighBits * kWeight - 4;  // brings the high bits to bit 4
      constexpr uint32_t kMask = ((1u << kHighBits) - 1) << 4;
      const auto low_part = hn::And(hn::ShiftRight<4 * kWeight>(low), hn::Set(U32(), 15u));
      const auto moved = [&] {
        if constexpr (kShift < 0) {
          return hn::ShiftLeft<-kShift>(high);
        } else {
          return hn::ShiftRight<kShift>(high);
        }
      }();
      auto code = hn::BitCast(I32(), hn::Or(low_part, hn::And(moved, hn::Set(U32(), kMask))));
      if constexpr (kFormat.code_offset != 0)
        code = hn::Sub(code, hn::Set(I32(), kFormat.code_offset));
      return hn::ConvertTo(F32(), code);
    }
  }
};

/// Widens one vector of a dense type.
template <WeightType kType>
HWY_INLINE Vec dense_weight(const uint8_t* packed, int lane) {
  if constexpr (kType == WeightType::kF32) {
    return load_f32(F32(), reinterpret_cast<const float*>(packed) + lane);
  } else if constexpr (kType == WeightType::kF16) {
    return load_f32(F32(), reinterpret_cast<const half*>(packed) + lane);
  } else {
    return load_f32(F32(), reinterpret_cast<const bfloat16*>(packed) + lane);
  }
}

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
