#include "heddle/core/dispatch.h"

#include "ops/attention/kv_append/kv_append_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/attention/kv_append/kv_append_cpu.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// After foreach_target.h: compiled once per target.
#include "cpu/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::attention::HWY_NAMESPACE {
using namespace heddle::cpu::HWY_NAMESPACE;  // the toolbox: hn, load_f32, store_f32, ...

template <class From, class To>
void convert(const From* from, To* to, int64_t n) {
  const hn::ScalableTag<float> d;
  const int64_t step = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + step <= n; i += step) store_f32(d, load_f32(d, from + i), to + i);
  const size_t rest = static_cast<size_t>(n - i);
  if (rest != 0) store_f32_n(d, load_f32_n(d, from + i, rest), to + i, rest);
}

void convert_types(DType from_dtype, const void* from, DType to_dtype, void* to, int64_t n) {
  dispatch_dtype<float, half, bfloat16>(from_dtype, "kv_append", [&]<class From>() {
    dispatch_dtype<float, half, bfloat16>(to_dtype, "kv_append", [&]<class To>() {
      convert(static_cast<const From*>(from), static_cast<To*>(to), n);
    });
  });
}

/// The largest |x| of d's lanes and of `largest`; NaN counts nothing.
template <class D>
HWY_INLINE hn::Vec<D> larger_of(D, hn::Vec<D> x, hn::Vec<D> largest) {
  const auto magnitude = hn::Abs(x);
  return hn::IfThenElse(hn::Gt(magnitude, largest), magnitude, largest);
}

template <class From>
float largest_magnitude(const From* from, int64_t n) {
  const hn::ScalableTag<float> d;
  const int64_t step = static_cast<int64_t>(hn::Lanes(d));
  auto largest = hn::Zero(d);
  int64_t i = 0;
  for (; i + step <= n; i += step) largest = larger_of(d, load_f32(d, from + i), largest);
  const size_t rest = static_cast<size_t>(n - i);
  if (rest != 0) largest = larger_of(d, load_f32_n(d, from + i, rest), largest);
  return hn::GetLane(hn::MaxOfLanes(d, largest));
}

float scale_of_types(DType from_dtype, const void* from, int64_t n) {
  constexpr float kLargestCode = 448.0f;
  float scale = 0.0f;
  dispatch_dtype<float, half, bfloat16>(from_dtype, "kv_append", [&]<class From>() {
    scale = largest_magnitude(static_cast<const From*>(from), n) / kLargestCode;
  });
  return scale;
}

/// x / scale, 0 where scale is 0, and NaN where x is not finite.
template <class D>
HWY_INLINE hn::Vec<D> scaled(D d, hn::Vec<D> x, float scale) {
  const auto quotient = scale == 0.0f ? hn::Zero(d) : hn::Div(x, hn::Set(d, scale));
  return hn::IfThenElse(hn::IsFinite(x), quotient, hn::NaN(d));
}

void quantise_types(DType from_dtype, const void* from, float scale, float8_e4m3* codes,
                    int64_t n) {
  dispatch_dtype<float, half, bfloat16>(from_dtype, "kv_append", [&]<class From>() {
    const From* x = static_cast<const From*>(from);
    const hn::ScalableTag<float> d;
    const int64_t step = static_cast<int64_t>(hn::Lanes(d));
    int64_t i = 0;
    for (; i + step <= n; i += step) store_f32(d, scaled(d, load_f32(d, x + i), scale), codes + i);
    const size_t rest = static_cast<size_t>(n - i);
    if (rest != 0) store_f32_n(d, scaled(d, load_f32_n(d, x + i, rest), scale), codes + i, rest);
  });
}

}  // namespace heddle::cpu::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu::attention {
HWY_EXPORT(convert_types);
HWY_EXPORT(scale_of_types);
HWY_EXPORT(quantise_types);
void convert_row(DType from_dtype, const void* from, DType to_dtype, void* to, int64_t n) {
  HWY_DYNAMIC_DISPATCH(convert_types)(from_dtype, from, to_dtype, to, n);
}
float scale_of_row(DType from_dtype, const void* from, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(scale_of_types)(from_dtype, from, n);
}
void quantise_row(DType from_dtype, const void* from, float scale, float8_e4m3* codes, int64_t n) {
  HWY_DYNAMIC_DISPATCH(quantise_types)(from_dtype, from, scale, codes, n);
}
}  // namespace heddle::cpu::attention
#endif
