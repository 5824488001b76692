#include "heddle/core/dtype.h"

#include "ops/attention/merge_states/merge_states_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/attention/merge_states/merge_states_cpu.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// After foreach_target.h: compiled once per target.
#include "cpu/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::attention::HWY_NAMESPACE {
using namespace heddle::cpu::HWY_NAMESPACE;  // the toolbox: hn, load_f32, store_f32, ...

template <class T>
void merge(const T* a, float weight_a, const T* b, float weight_b, int64_t n, T* o) {
  const hn::ScalableTag<float> d;
  const int64_t step = static_cast<int64_t>(hn::Lanes(d));
  const auto wa = hn::Set(d, weight_a), wb = hn::Set(d, weight_b);
  for (int64_t i = 0; i < n; i += step) {
    const bool whole = i + step <= n;
    const size_t rest = static_cast<size_t>(n - i);
    auto sum = hn::Zero(d);
    if (weight_a != 0.0f) {
      sum = hn::Mul(wa, whole ? load_f32(d, a + i) : load_f32_n(d, a + i, rest));
    }
    if (weight_b != 0.0f) {
      sum = hn::MulAdd(wb, whole ? load_f32(d, b + i) : load_f32_n(d, b + i, rest), sum);
    }
    if (whole) {
      store_f32(d, sum, o + i);
    } else {
      store_f32_n(d, sum, o + i, rest);
    }
  }
}

void merge_f32(const float* a, float wa, const float* b, float wb, int64_t n, float* o) {
  merge(a, wa, b, wb, n, o);
}
void merge_f16(const half* a, float wa, const half* b, float wb, int64_t n, half* o) {
  merge(a, wa, b, wb, n, o);
}
void merge_bf16(const bfloat16* a, float wa, const bfloat16* b, float wb, int64_t n, bfloat16* o) {
  merge(a, wa, b, wb, n, o);
}

}  // namespace heddle::cpu::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu::attention {
HWY_EXPORT(merge_f32);
HWY_EXPORT(merge_f16);
HWY_EXPORT(merge_bf16);
template <>
void merge_row(const float* a, float wa, const float* b, float wb, int64_t n, float* o) {
  HWY_DYNAMIC_DISPATCH(merge_f32)(a, wa, b, wb, n, o);
}
template <>
void merge_row(const half* a, float wa, const half* b, float wb, int64_t n, half* o) {
  HWY_DYNAMIC_DISPATCH(merge_f16)(a, wa, b, wb, n, o);
}
template <>
void merge_row(const bfloat16* a, float wa, const bfloat16* b, float wb, int64_t n, bfloat16* o) {
  HWY_DYNAMIC_DISPATCH(merge_bf16)(a, wa, b, wb, n, o);
}
}  // namespace heddle::cpu::attention
#endif
