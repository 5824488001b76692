#include "ops/activation/silu_and_mul_kernels.h"

// Highway compiles this file once per instruction set; the inner namespace keeps the copies apart.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/activation/silu_and_mul_cpu.cpp"
// The order of these includes matters.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "ops/activation/gated-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::activation::HWY_NAMESPACE {

struct Silu {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V gate) const {
    return times_sigmoid(d, gate, gate);
  }
};

void silu_and_mul(const GatedParams& p, int64_t row, int64_t begin, int64_t end) {
  gated_columns<Silu>(p, row, begin, end);
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
