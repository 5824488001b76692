// y = T(f(gate) * up) over a row, for files that Highway compiles once per target. Include inside
// such a file.

#if defined(HEDDLE_GATED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_GATED_INL_H_
#undef HEDDLE_GATED_INL_H_
#else
#define HEDDLE_GATED_INL_H_
#endif

#include "hwy/highway.h"
// The order of these includes matters.
// clang-format off
#include "cpu/vec-inl.h"
#include "hwy/contrib/math/math-inl.h"
// clang-format on

#include "ops/activation/gated.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::activation::HWY_NAMESPACE {
using namespace cpu::HWY_NAMESPACE;  // of cpu/vec-inl.h

/// x / (1 + exp(-z)) with e = exp(-|z|), which never overflows: x / (1 + e) where z is positive,
/// and x * e / (1 + e) where it is negative, accurate down to the smallest results. At x = z =
/// -infinity, where that product is not defined, e is 0 and the bound on x makes it the limit, -0.
/// NaN gives NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V times_sigmoid(D d, V x, V z) {
  const auto one = hn::Set(d, 1.0f), bound = hn::Set(d, -1e30f);
  const auto e = hn::Exp(d, hn::Neg(hn::Abs(z)));
  const auto negative = hn::Lt(z, hn::Zero(d));
  const auto finite = hn::IfThenElse(hn::Lt(x, bound), bound, x);
  const auto numerator = hn::IfThenElse(negative, hn::Mul(finite, e), x);
  return hn::Div(numerator, hn::Add(one, e));
}

/// n elements. Gate: a functor (tag, vector of f32) -> vector of f32 without state.
template <class Gate, class T>
void gated_elements(T* y, const T* gate, const T* up, int64_t n) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto g = Gate()(d, load_f32(d, gate + i));
    store_f32(d, hn::Mul(g, load_f32(d, up + i)), y + i);
  }
  if (i < n) {
    const size_t left = size_t(n - i);
    const auto g = Gate()(d, load_f32_n(d, gate + i, left));
    store_f32_n(d, hn::Mul(g, load_f32_n(d, up + i, left)), y + i, left);
  }
}

template <class Gate, class T>
void gated_columns_of(const GatedParams& p, int64_t row, int64_t begin, int64_t end) {
  gated_elements<Gate>(reinterpret_cast<T*>(p.y + row * p.y_stride) + begin,
                       reinterpret_cast<const T*>(p.gate + row * p.gate_stride) + begin,
                       reinterpret_cast<const T*>(p.up + row * p.up_stride) + begin, end - begin);
}

/// The columns [begin, end) of a row.
template <class Gate>
void gated_columns(const GatedParams& p, int64_t row, int64_t begin, int64_t end) {
  switch (p.dtype) {
    case DType::kFloat16: return gated_columns_of<Gate, half>(p, row, begin, end);
    case DType::kBFloat16: return gated_columns_of<Gate, bfloat16>(p, row, begin, end);
    default: return gated_columns_of<Gate, float>(p, row, begin, end);
  }
}

}  // namespace heddle::cpu::activation::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
