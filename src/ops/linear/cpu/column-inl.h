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
#include "ops/linear/format/packed_layout.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::linear::HWY_NAMESPACE {
using namespace cpu::HWY_NAMESPACE;  // of cpu/vec-inl.h
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::CappedTag<float, PackedLayout::kGroup>;
using I32 = hn::Rebind<int32_t, F32>;
using U32 = hn::Rebind<uint32_t, F32>;
using Vec = hn::Vec<F32>;

constexpr int kLanes =
    HWY_LANES(float) < PackedLayout::kGroup ? HWY_LANES(float) : PackedLayout::kGroup;
constexpr int kGroupVectors = PackedLayout::kGroup / kLanes;  // vectors of one group

/// kLanes outputs of a group, from output `lane` on: gives their weights of one k after the other.
/// Usage: open() a sub-block, load() each run of 8 weights of it in ascending order, take
/// weight<0>() to weight<7>().
///
/// Codes of less than 8 bits are converted where they stand in their word: a code in field i of
/// width w is an integer 2^(w i) times too large, which a scale 2^(w i) times smaller takes back
/// exactly. So a weight costs one mask, one conversion and one multiply-add, and no shift. An
/// offset of the codes is a minimum of -scale * offset: as a weight is exact in f32, it has the
/// same value with the one rounding of the multiply-add.
template <WeightType kType>
struct Column {
  static constexpr BlockFormat kFormat = block_format(kType);
  static constexpr PackedLayout kLayout{kType};
  static constexpr int kSteps = kFormat.sub_block_size / 8;  // runs of 8 weights in a sub-block
  static constexpr bool kBytes = kFormat.code_bits == 8;
  static constexpr int kHighBits = kFormat.code_bits - 4;
  static constexpr bool kHasMin = kFormat.has_min || kFormat.code_offset != 0;
  static constexpr int kFieldBits = kHighBits == 0 ? 4 : 8;
  static constexpr int kFields = kBytes ? 1 : 4;  // of a part
  static constexpr int kSubBytes = PackedLayout::kGroup * kFormat.sub_block_size *
                                   kFormat.code_bits / 8;  // codes of a sub-block
  static constexpr int kWordBytes = PackedLayout::kGroup * 4;

  Vec scale[kFields], min;
  hn::Vec<U32> part[2], high;
  const uint8_t* codes;  // of the sub-block, at this column's first output

  HWY_INLINE void open(const uint8_t* block, int sub, int lane) {
    const F32 d;
    codes = block + kLayout.codes + sub * kSubBytes + lane * (kBytes ? 1 : 4);
    if constexpr (kHighBits == 1 || kHighBits == 2) high = load_words(codes + kSteps * kWordBytes);
    scale[0] = load_f32(d, reinterpret_cast<const half*>(block) + lane);
    if constexpr (kFormat.has_min) {
      min = load_f32(d, reinterpret_cast<const half*>(block + kLayout.mins) + lane);
    }
    const int item = sub * PackedLayout::kGroup + lane;
    if constexpr (kFormat.sub_scales == SubScales::kUnsigned6) {
      scale[0] = hn::Mul(scale[0], load_small<uint8_t>(block + kLayout.sub_scales + item));
      min = hn::Neg(hn::Mul(min, load_small<uint8_t>(block + kLayout.sub_mins + item)));
    }
    if constexpr (kFormat.sub_scales == SubScales::kSigned8) {
      scale[0] = hn::Mul(scale[0], load_small<int8_t>(block + kLayout.sub_scales + item));
    }
    if constexpr (kFormat.code_offset != 0) {
      min = hn::Mul(scale[0], hn::Set(d, -static_cast<float>(kFormat.code_offset)));
    }
    HWY_UNROLL(4)
    for (int i = 1; i < kFields; ++i) {
      scale[i] = hn::Mul(scale[0], hn::Set(d, 1.0f / static_cast<float>(1 << (kFieldBits * i))));
    }
  }

  /// Splits the words of a run into parts whose fields hold one code each.
  HWY_INLINE void load(int step) {
    if constexpr (kBytes) {
      step_codes = codes + step * 8 * PackedLayout::kGroup;
      return;
    }
    const auto words = load_words(codes + step * kWordBytes);
    if constexpr (kHighBits == 0) {
      part[0] = words;
      part[1] = hn::ShiftRight<16>(words);
    } else {
      const auto low_mask = hn::Set(U32(), 0x0f0f0f0fu);
      const auto high_mask = hn::Set(U32(), 0x10101010u * ((1u << kHighBits) - 1));
      part[0] = hn::Or(hn::And(words, low_mask), hn::And(high, high_mask));
      part[1] = hn::Or(hn::And(hn::ShiftRight<4>(words), low_mask),
                       hn::And(hn::ShiftRight<kHighBits>(high), high_mask));
      high = hn::RotateRight<2 * kHighBits>(high);
    }
  }

  template <int kWeight>
  HWY_INLINE Vec weight() const {
    constexpr int kField = kBytes ? 0 : kFieldBits == 4 ? kWeight % 4 : kWeight / 2;
    const auto q = hn::ConvertTo(F32(), code<kWeight, kField>());
    if constexpr (kHasMin) return hn::MulAdd(scale[kField], q, min);
    return hn::Mul(scale[kField], q);
  }

  /// The codes of the even (kOdd = 0) or odd weights of the run, four bytes a lane; those of 8 bits
  /// are 128 more than they were.
  template <int kOdd>
  HWY_INLINE hn::Vec<U32> codes_of() const {
    if constexpr (kBytes) {
      return hn::Xor(bytes_of<kOdd>(), hn::Set(U32(), 0x80808080u));
    } else if constexpr (kHighBits == 0) {
      return hn::And(kOdd ? hn::ShiftRight<4>(part[0]) : part[0], hn::Set(U32(), 0x0f0f0f0fu));
    } else {
      return part[kOdd];
    }
  }

 private:
  const uint8_t* step_codes;

  template <int kOdd>
  HWY_INLINE hn::Vec<U32> bytes_of() const {
    const hn::Rebind<uint8_t, F32> d8;
    const auto byte = [&](int weight) {
      return hn::PromoteTo(U32(), hn::LoadU(d8, step_codes + weight * PackedLayout::kGroup));
    };
    const auto low = hn::Or(byte(kOdd), hn::ShiftLeft<8>(byte(kOdd + 2)));
    return hn::Or(low,
                  hn::Or(hn::ShiftLeft<16>(byte(kOdd + 4)), hn::ShiftLeft<24>(byte(kOdd + 6))));
  }

  static HWY_INLINE hn::Vec<U32> load_words(const uint8_t* p) {
    return hn::LoadU(U32(), reinterpret_cast<const uint32_t*>(p));
  }
  template <class T>
  static HWY_INLINE Vec load_small(const uint8_t* p) {
    const hn::Rebind<T, F32> d;
    return hn::ConvertTo(F32(), hn::PromoteTo(I32(), hn::LoadU(d, reinterpret_cast<const T*>(p))));
  }

  /// The code of a weight, times 2^(kFieldBits kField).
  template <int kWeight, int kField>
  HWY_INLINE hn::Vec<I32> code() const {
    if constexpr (kBytes) {
      const hn::Rebind<int8_t, F32> i8;
      const auto* p = reinterpret_cast<const int8_t*>(step_codes + kWeight * PackedLayout::kGroup);
      return hn::PromoteTo(I32(), hn::LoadU(i8, p));
    } else {
      constexpr int kWord = kFieldBits == 4 ? kWeight / 4 : kWeight % 2;
      constexpr uint32_t kMask = ((1u << kFieldBits) - 1) << (kFieldBits * kField);
      return hn::BitCast(I32(), hn::And(part[kWord], hn::Set(U32(), kMask)));
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

}  // namespace heddle::cpu::linear::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
