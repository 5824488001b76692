#include "ops/lora/pairs/pairs_kernels.h"

// Highway compiles this file once per instruction set; the inner namespace keeps the copies apart.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/lora/pairs/pairs_cpu.cpp"
// The order of these includes matters.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "cpu/vec-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::lora::HWY_NAMESPACE {
using namespace cpu::HWY_NAMESPACE;  // of cpu/vec-inl.h

/// to[i] = from[i] by way of f32, for any two of the float types.
template <class To, class From>
HWY_INLINE void convert(To* to, const From* from, int64_t n) {
  const hn::CappedTag<float, 16> d;
  constexpr int64_t kLanes = int64_t{hn::MaxLanes(d)};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store_f32(d, load_f32(d, from + i), to + i);
  if (i < n) store_f32_n(d, load_f32_n(d, from + i, size_t(n - i)), to + i, size_t(n - i));
}

void widen_outputs(float* sums, const std::byte* y, DType dtype, int64_t n) {
  if (dtype == DType::kFloat16) return convert(sums, reinterpret_cast<const half*>(y), n);
  convert(sums, reinterpret_cast<const bfloat16*>(y), n);
}

void narrow_outputs(std::byte* y, const float* sums, DType dtype, int64_t n) {
  if (dtype == DType::kFloat16) return convert(reinterpret_cast<half*>(y), sums, n);
  convert(reinterpret_cast<bfloat16*>(y), sums, n);
}

}  // namespace heddle::cpu::lora::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu::lora {
HWY_EXPORT(widen_outputs);
HWY_EXPORT(narrow_outputs);
void widen_outputs(float* sums, const std::byte* y, DType dtype, int64_t n) {
  HWY_DYNAMIC_DISPATCH(widen_outputs)(sums, y, dtype, n);
}
void narrow_outputs(std::byte* y, const float* sums, DType dtype, int64_t n) {
  HWY_DYNAMIC_DISPATCH(narrow_outputs)(y, sums, dtype, n);
}
}  // namespace heddle::cpu::lora
#endif
