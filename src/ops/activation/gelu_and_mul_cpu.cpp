#include "ops/activation/gelu_and_mul_kernels.h"

// Highway compiles this file once per instruction set; the inner namespace keeps the copies apart.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/activation/gelu_and_mul_cpu.cpp"
// The order of these includes matters.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ops/activation/gated-inl.h"
// clang-format on

#include "ops/activation/gelu.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::activation::HWY_NAMESPACE {

/// max(x, 0) - a Q(a), as gelu.h says. NaN gives NaN.
struct GeluErf {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    const auto one = hn::Set(d, 1.0f), zero = hn::Zero(d), bound = hn::Set(d, gelu::kBound);
    const auto magnitude = hn::Abs(x);
    const auto a = hn::IfThenElse(hn::Gt(magnitude, bound), bound, magnitude);
    const auto z = hn::Div(one, hn::MulAdd(a, hn::Set(d, gelu::kSlope), one));
    constexpr gelu::Tail kTail;
    auto tail = hn::Set(d, kTail.t[kTail.kDegree]);
    for (int i = kTail.kDegree - 1; i >= 0; --i) {
      tail = hn::MulAdd(tail, z, hn::Set(d, kTail.t[i]));
    }
    const auto e = hn::Exp(d, hn::Mul(hn::Mul(a, a), hn::Set(d, -0.5f)));
    const auto q = hn::Mul(hn::Mul(tail, z), e);
    const auto positive = hn::IfThenElse(hn::Lt(x, zero), zero, x);
    return hn::NegMulAdd(a, q, positive);
  }
};

struct GeluTanh {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    const auto linear = hn::Set(d, static_cast<float>(gelu::kLinear)),
               cubic = hn::Set(d, static_cast<float>(gelu::kCubic));
    return times_sigmoid(d, x, hn::Mul(x, hn::MulAdd(hn::Mul(x, x), cubic, linear)));
  }
};

void gelu_and_mul(const GatedParams& p, GeluForm form, int64_t row, int64_t begin, int64_t end) {
  if (form == GeluForm::kTanh) return gated_columns<GeluTanh>(p, row, begin, end);
  gated_columns<GeluErf>(p, row, begin, end);
}

}  // namespace heddle::cpu::activation::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu::activation {
HWY_EXPORT(gelu_and_mul);
void gelu_and_mul(const GatedParams& p, GeluForm form, int64_t row, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(gelu_and_mul)(p, form, row, begin, end);
}
}  // namespace heddle::cpu::activation
#endif
