#include "heddle/core/dtype.h"

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

void f32_to_f16(const float* from, half* to, int64_t n) { convert(from, to, n); }
void f32_to_bf16(const float* from, bfloat16* to, int64_t n) { convert(from, to, n); }
void f16_to_f32(const half* from, float* to, int64_t n) { convert(from, to, n); }
void f16_to_bf16(const half* from, bfloat16* to, int64_t n) { convert(from, to, n); }
void bf16_to_f32(const bfloat16* from, float* to, int64_t n) { convert(from, to, n); }
void bf16_to_f16(const bfloat16* from, half* to, int64_t n) { convert(from, to, n); }

}  // namespace heddle::cpu::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu::attention {
HWY_EXPORT(f32_to_f16);
HWY_EXPORT(f32_to_bf16);
HWY_EXPORT(f16_to_f32);
HWY_EXPORT(f16_to_bf16);
HWY_EXPORT(bf16_to_f32);
HWY_EXPORT(bf16_to_f16);
template <>
void convert_row(const float* from, half* to, int64_t n) {
  HWY_DYNAMIC_DISPATCH(f32_to_f16)(from, to, n);
}
template <>
void convert_row(const float* from, bfloat16* to, int64_t n) {
  HWY_DYNAMIC_DISPATCH(f32_to_bf16)(from, to, n);
}
template <>
void convert_row(const half* from, float* to, int64_t n) {
  HWY_DYNAMIC_DISPATCH(f16_to_f32)(from, to, n);
}
template <>
void convert_row(const half* from, bfloat16* to, int64_t n) {
  HWY_DYNAMIC_DISPATCH(f16_to_bf16)(from, to, n);
}
template <>
void convert_row(const bfloat16* from, float* to, int64_t n) {
  HWY_DYNAMIC_DISPATCH(bf16_to_f32)(from, to, n);
}
template <>
void convert_row(const bfloat16* from, half* to, int64_t n) {
  HWY_DYNAMIC_DISPATCH(bf16_to_f16)(from, to, n);
}
}  // namespace heddle::cpu::attention
#endif
