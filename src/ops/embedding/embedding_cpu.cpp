#include "ops/embedding/embedding_kernels.h"

// Highway compiles this file once per instruction set; the inner namespace keeps the copies apart.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/embedding/embedding_cpu.cpp"
// The order of these includes matters.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "cpu/vec-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::embedding::HWY_NAMESPACE {
using namespace cpu::HWY_NAMESPACE;  // of cpu/vec-inl.h

template <class T>
void widen(float* HWY_RESTRICT y, const T* HWY_RESTRICT row, int64_t width) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= width; i += lanes) store_f32(d, load_f32(d, row + i), y + i);
  if (i < width) {
    const size_t left = size_t(width - i);
    store_f32_n(d, load_f32_n(d, row + i, left), y + i, left);
  }
}

void widen_row(float* y, const std::byte* row, DType dtype, int64_t width) {
  if (dtype == DType::kFloat16) {
    widen(y, reinterpret_cast<const half*>(row), width);
  } else {
    widen(y, reinterpret_cast<const bfloat16*>(row), width);
  }
}

}  // namespace heddle::cpu::embedding::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu::embedding {
HWY_EXPORT(widen_row);
void widen_row(float* y, const std::byte* row, DType dtype, int64_t width) {
  HWY_DYNAMIC_DISPATCH(widen_row)(y, row, dtype, width);
}
}  // namespace heddle::cpu::embedding
#endif
