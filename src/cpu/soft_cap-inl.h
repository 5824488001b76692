// The soft cap of attention scores and of logits, for files that Highway compiles once per target.
// Include inside such a file.

#if defined(HEDDLE_CPU_SOFT_CAP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_CPU_SOFT_CAP_INL_H_
#undef HEDDLE_CPU_SOFT_CAP_INL_H_
#else
#define HEDDLE_CPU_SOFT_CAP_INL_H_
#endif

#include "hwy/highway.h"
// After highway.h.
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {

/// cap * tanh(v / cap), cap > 0.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V soft_cap(D d, V v, float cap) {
  namespace hn = hwy::HWY_NAMESPACE;
  return hn::Mul(hn::Set(d, cap), hn::Tanh(d, hn::Div(v, hn::Set(d, cap))));
}

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
