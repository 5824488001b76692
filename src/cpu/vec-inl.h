// Loads and stores of f32 vectors from and to f32, f16, bf16 and f8e4m3 memory, for files that
// Highway compiles once per target. Include inside such a file, after hwy/highway.h.

#if defined(HEDDLE_CPU_VEC_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_CPU_VEC_INL_H_
#undef HEDDLE_CPU_VEC_INL_H_
#else
#define HEDDLE_CPU_VEC_INL_H_
#endif

#include "hwy/highway.h"

#include "heddle/core/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// d: tag of f32. Each load reads Lanes(d) elements at p, of any alignment, and widens them
/// exactly.
template <class D>
HWY_INLINE hn::Vec<D> load_f32(D d, const float* HWY_RESTRICT p) {
  return hn::LoadU(d, p);
}
/// As above, of elements in a register.
template <class D>
HWY_INLINE hn::Vec<D> widen_bf16(D d, hn::Vec<hn::Rebind<uint16_t, D>> bits) {
  const hn::Rebind<uint32_t, D> d32;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, bits)));
}
template <class D>
HWY_INLINE hn::Vec<D> widen_f16(D d, hn::Vec<hn::Rebind<uint16_t, D>> bits) {
#if HWY_TARGET <= HWY_AVX2
  const hn::Rebind<hwy::float16_t, D> df16;
  return hn::PromoteTo(d, hn::BitCast(df16, bits));
#else  // exact, subnormals, infinity and NaN included: scale a rebiased f32 by 2^112
  const hn::Rebind<uint32_t, D> d32;
  const auto wide = hn::PromoteTo(d32, bits);
  const auto sign = hn::ShiftLeft<16>(hn::And(wide, hn::Set(d32, 0x8000u)));
  const auto magnitude = hn::ShiftLeft<13>(hn::And(wide, hn::Set(d32, 0x7fffu)));
  const auto scaled = hn::BitCast(
      d32, hn::Mul(hn::BitCast(d, magnitude), hn::Set(d, 5192296858534827628530496329220096.0f)));
  const auto special = hn::Gt(hn::BitCast(hn::Rebind<int32_t, D>(), magnitude),
                              hn::Set(hn::Rebind<int32_t, D>(), 0x0f7fffff));
  const auto non_finite = hn::Or(magnitude, hn::Set(d32, 0x7f800000u));
  return hn::BitCast(
      d, hn::Or(sign, hn::IfThenElse(hn::RebindMask(d32, special), non_finite, scaled)));
#endif
}

template <class D>
HWY_INLINE hn::Vec<D> load_f32(D d, const bfloat16* HWY_RESTRICT p) {
  const hn::Rebind<uint16_t, D> d16;
  return widen_bf16(d, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p)));
}
template <class D>
HWY_INLINE hn::Vec<D> load_f32(D d, const half* HWY_RESTRICT p) {
  const hn::Rebind<uint16_t, D> d16;
  return widen_f16(d, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p)));
}

/// What load_codes() returns is to be multiplied by.
inline constexpr float kCodeFactor = HWY_TARGET <= HWY_AVX2 ? 256.0f : 1.0f;

/// Lanes(d) values of f8e4m3, divided by kCodeFactor.
template <class D>
HWY_INLINE hn::Vec<D> load_codes(D d, const float8_e4m3* HWY_RESTRICT p) {
  const hn::Rebind<int8_t, D> d8;
  const hn::Rebind<int16_t, D> d16;
  const auto codes = hn::PromoteTo(d16, hn::LoadU(d8, reinterpret_cast<const int8_t*>(p)));
#if HWY_TARGET <= HWY_AVX2
  // The bits of f16, which has one more of exponent: that is 2^-8 of the value. Its subnormals take
  // no longer than other numbers, unlike those of f32. At first bits 15 and 14 are the sign; bit 14
  // has to be 0, or 1 for NaN, whose magnitude is all ones: there 1 more carries into it.
  const hn::Rebind<hwy::float16_t, D> df16;
  const auto wide = hn::ShiftLeft<7>(codes);
  const auto changed = hn::And(hn::Add(wide, hn::Set(d16, 0x80)), hn::Set(d16, 0x4000));
  return hn::PromoteTo(d, hn::BitCast(df16, hn::Xor(wide, changed)));
#else
  const hn::Rebind<int32_t, D> d32;
  const auto wide = hn::PromoteTo(d32, codes);
  const auto sign = hn::And(wide, hn::Set(d32, static_cast<int32_t>(0x80000000u)));
  const auto magnitude = hn::And(wide, hn::Set(d32, 0x7f));
  const auto bits = hn::Add(hn::ShiftLeft<20>(magnitude), hn::Set(d32, 120 << 23));
  const auto normal = hn::BitCast(d, bits);
  // Where the exponent is 0, `normal` is 2^-7 (1 + f) for 2^-6 f.
  const auto subnormal = hn::Add(normal, hn::Sub(normal, hn::Set(d, 0.015625f)));
  const auto is_normal = hn::RebindMask(d, hn::Gt(magnitude, hn::Set(d32, 7)));
  const auto number = hn::BitCast(d32, hn::IfThenElse(is_normal, normal, subnormal));
  const auto is_nan = hn::Eq(magnitude, hn::Set(d32, 0x7f));
  return hn::BitCast(d, hn::Or(sign, hn::IfThenElse(is_nan, hn::Set(d32, 0x7fc00000), number)));
#endif
}

/// Stores Lanes(d) values at p, rounded to nearest, ties to even.
template <class D>
HWY_INLINE void store_f32(D d, hn::Vec<D> v, float* HWY_RESTRICT p) {
  hn::StoreU(v, d, p);
}
template <class D>
HWY_INLINE void store_f32([[maybe_unused]] D d, hn::Vec<D> v, bfloat16* HWY_RESTRICT p) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<uint32_t, D> d32;
  const auto bits = hn::BitCast(d32, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(d32, 0x7fffu))));
  const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(d32, 0x40u));
  const auto is_nan = hn::RebindMask(d32, hn::IsNaN(v));
  hn::StoreU(hn::TruncateTo(d16, hn::IfThenElse(is_nan, quiet, rounded)), d16,
             reinterpret_cast<uint16_t*>(p));
}
template <class D>
HWY_INLINE void store_f32(D d, hn::Vec<D> v, half* HWY_RESTRICT p) {
  const hn::Rebind<uint16_t, D> d16;
#if HWY_TARGET <= HWY_AVX2
  const hn::Rebind<hwy::float16_t, D> df16;
  hn::StoreU(hn::BitCast(d16, hn::DemoteTo(df16, v)), d16, reinterpret_cast<uint16_t*>(p));
#else
  (void)d16;
  float lanes[hn::MaxLanes(d)];
  hn::StoreU(v, d, lanes);
  for (size_t i = 0; i < hn::Lanes(d); ++i) p[i] = from_float<half>(lanes[i]);
#endif
}

template <class D>
HWY_INLINE void store_f32([[maybe_unused]] D d, hn::Vec<D> v, float8_e4m3* HWY_RESTRICT p) {
  const hn::Rebind<uint8_t, D> d8;
  const hn::Rebind<uint32_t, D> d32;
  const auto bits = hn::BitCast(d32, v);
  const auto sign = hn::And(hn::ShiftRight<24>(bits), hn::Set(d32, 0x80u));
  // Whatever a NaN becomes here, its lanes are replaced at the end.
  const auto capped = hn::Min(hn::Abs(v), hn::Set(d, 448.0f));
  const auto magnitude = hn::BitCast(d32, capped);
  const auto odd = hn::And(hn::ShiftRight<20>(magnitude), hn::Set(d32, 1u));
  const auto rounded = hn::Add(magnitude, hn::Add(odd, hn::Set(d32, 0x7ffffu)));
  const auto normal = hn::ShiftRight<20>(hn::Sub(rounded, hn::Set(d32, 120u << 23)));
  // Below 2^-6: adding 2^14 leaves the multiple of 2^-9 in the low bits.
  const auto shifted = hn::BitCast(d32, hn::Add(capped, hn::Set(d, 16384.0f)));
  const auto subnormal = hn::Sub(shifted, hn::Set(d32, 0x46800000u));
  const auto is_normal = hn::RebindMask(d32, hn::Ge(capped, hn::Set(d, 0.015625f)));
  const auto number = hn::Or(sign, hn::IfThenElse(is_normal, normal, subnormal));
  const auto is_nan = hn::RebindMask(d32, hn::IsNaN(v));
  hn::StoreU(hn::TruncateTo(d8, hn::IfThenElse(is_nan, hn::Set(d32, 0x7fu), number)), d8,
             reinterpret_cast<uint8_t*>(p));
}

/// The first n < Lanes(d) elements at p, the other lanes zero; nothing past them is read.
template <class D, class T>
HWY_INLINE hn::Vec<D> load_f32_n(D d, const T* HWY_RESTRICT p, size_t n) {
  T lanes[hn::MaxLanes(d)] = {};
  for (size_t i = 0; i < n; ++i) lanes[i] = p[i];
  return load_f32(d, lanes);
}

/// Stores the first n < Lanes(d) lanes; nothing past them is written.
template <class D, class T>
HWY_INLINE void store_f32_n(D d, hn::Vec<D> v, T* HWY_RESTRICT p, size_t n) {
  T lanes[hn::MaxLanes(d)];
  store_f32(d, v, lanes);
  for (size_t i = 0; i < n; ++i) p[i] = lanes[i];
}

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
