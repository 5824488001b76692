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

}  // namespace heddle::cpu::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu::attention {
HWY_EXPORT(convert_types);
void convert_row(DType from_dtype, const void* from, DType to_dtype, void* to, int64_t n) {
  HWY_DYNAMIC_DISPATCH(convert_types)(from_dtype, from, to_dtype, to, n);
}
}  // namespace heddle::cpu::attention
#endif
