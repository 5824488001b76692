// The rotation of pairs of elements, the heart of rotary embeddings. Include inside a file that
// Highway compiles once per target.

#if defined(HEDDLE_CPU_ROTATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_CPU_ROTATE_INL_H_
#undef HEDDLE_CPU_ROTATE_INL_H_
#else
#define HEDDLE_CPU_ROTATE_INL_H_
#endif

#include "cpu/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {

/// (out_a[d], out_b[d]) = (a[d] cos[d] - b[d] sin[d], b[d] cos[d] + a[d] sin[d]) for d < n. In f32:
/// the product with cos is rounded, the one with sin is fused into the sum. The outputs may be the
/// inputs.
template <class T, class Out>
HWY_INLINE void rotate_pairs(const T* a, const T* b, const float* cos, const float* sin, int64_t n,
                             Out* out_a, Out* out_b) {
  const hn::ScalableTag<float> d;
  const int64_t step = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + step <= n; i += step) {
    const auto va = load_f32(d, a + i), vb = load_f32(d, b + i);
    const auto c = hn::LoadU(d, cos + i), s = hn::LoadU(d, sin + i);
    store_f32(d, hn::NegMulAdd(vb, s, hn::Mul(va, c)), out_a + i);
    store_f32(d, hn::MulAdd(va, s, hn::Mul(vb, c)), out_b + i);
  }
  if (i == n) return;
  const size_t rest = static_cast<size_t>(n - i);
  const auto va = load_f32_n(d, a + i, rest), vb = load_f32_n(d, b + i, rest);
  const auto c = load_f32_n(d, cos + i, rest), s = load_f32_n(d, sin + i, rest);
  store_f32_n(d, hn::NegMulAdd(vb, s, hn::Mul(va, c)), out_a + i, rest);
  store_f32_n(d, hn::MulAdd(va, s, hn::Mul(vb, c)), out_b + i, rest);
}

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
