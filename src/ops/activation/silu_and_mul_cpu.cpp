#include "ops/activation/silu_and_mul_kernels.h"

// Highway compiles this file once per instruction set; the inner namespace keeps the copies apart.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/activation/silu_and_mul_cpu.cpp"
// The order of these includes matters.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "cpu/vec-inl.h"
#include "hwy/contrib/math/math-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::activation::HWY_NAMESPACE {
using namespace cpu::HWY_NAMESPACE;  // of cpu/vec-inl.h

/// silu(gate) * up with e = exp(-|gate|), which never overflows: silu is gate / (1 + e) where gate
/// is positive, and gate * e / (1 + e) where it is negative, accurate down to the smallest results.
/// At -infinity, where that product is not defined, e is 0 and the bound on gate makes it the
/// limit, -0. NaN in either input gives NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V silu_times(D d, V gate, V up) {
  const auto one = hn::Set(d, 1.0f), bound = hn::Set(d, -1e30f);
  const auto e = hn::Exp(d, hn::Neg(hn::Abs(gate)));
  const auto negative = hn::Lt(gate, hn::Zero(d));
  const auto finite = hn::IfThenElse(hn::Lt(gate, bound), bound, gate);
  const auto numerator = hn::IfThenElse(negative, hn::Mul(finite, e), gate);
  return hn::Mul(hn::Div(numerator, hn::Add(one, e)), up);
}

template <class T>
void silu_and_mul_row(T* y, const T* gate, const T* up, int64_t n) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    store_f32(d, silu_times(d, load_f32(d, gate + i), load_f32(d, up + i)), y + i);
  }
  if (i < n) {
    const size_t left = size_t(n - i);
    store_f32_n(d, silu_times(d, load_f32_n(d, gate + i, left), load_f32_n(d, up + i, left)), y + i,
                left);
  }
}

template <class T>
void silu_and_mul_typed(const GatedParams& p, int64_t row, int64_t begin, int64_t end) {
  silu_and_mul_row(reinterpret_cast<T*>(p.y + row * p.y_stride) + begin,
                   reinterpret_cast<const T*>(p.gate + row * p.gate_stride) + begin,
                   reinterpret_cast<const T*>(p.up + row * p.up_stride) + begin, end - begin);
}

void silu_and_mul(const GatedParams& p, int64_t row, int64_t begin, int64_t end) {
  switch (p.dtype) {
    case DType::kFloat16: return silu_and_mul_typed<half>(p, row, begin, end);
    case DType::kBFloat16: return silu_and_mul_typed<bfloat16>(p, row, begin, end);
    default: return silu_and_mul_typed<float>(p, row, begin, end);
  }
}

}  // namespace heddle::cpu::activation::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu::activation {
HWY_EXPORT(silu_and_mul);
void silu_and_mul(const GatedParams& p, int64_t row, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(silu_and_mul)(p, row, begin, end);
}
}  // namespace heddle::cpu::activation
#endif
