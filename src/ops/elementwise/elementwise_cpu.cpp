#include "ops/elementwise/elementwise_kernels.h"

// Highway compiles this file once per instruction set; the inner namespace keeps the copies apart.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/elementwise/elementwise_cpu.cpp"
// The order of these includes matters.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "cpu/soft_cap-inl.h"
#include "cpu/vec-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::elementwise::HWY_NAMESPACE {
using namespace cpu::HWY_NAMESPACE;  // of cpu/vec-inl.h

/// x[i] = f(x[i]); f: (tag, vector of f32) -> vector of f32. The elements after the last whole
/// vector go through the same arithmetic.
template <class F>
HWY_INLINE void transform(float* x, int64_t n, F f) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(f(d, hn::LoadU(d, x + i)), d, x + i);
  if (i < n) {
    const size_t left = size_t(n - i);
    store_f32_n(d, f(d, load_f32_n(d, x + i, left)), x + i, left);
  }
}

struct Scaled {
  float factor;
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    return hn::Mul(x, hn::Set(d, factor));
  }
};

struct Capped {
  float cap;
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    return cpu::HWY_NAMESPACE::soft_cap(d, x, cap);
  }
};

void add(float* x, const float* y, int64_t n) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::Add(hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, x + i);
  }
  for (; i < n; ++i) x[i] += y[i];
}

template <class T>
HWY_INLINE void round_all(T* y, const float* x, int64_t n) {
  const hn::CappedTag<float, 16> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) store_f32(d, hn::LoadU(d, x + i), y + i);
  if (i < n) {
    const size_t left = size_t(n - i);
    store_f32_n(d, load_f32_n(d, x + i, left), y + i, left);
  }
}

/// A vector of columns at a time, so that their sums stay in a register.
template <class T>
HWY_INLINE void sum_all(float* sum, const T* x, int64_t stride, int64_t num_rows, int64_t n) {
  const hn::CappedTag<float, 16> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    auto sums = hn::LoadU(d, sum + i);
    for (int64_t row = 0; row < num_rows; ++row) {
      sums = hn::Add(sums, load_f32(d, x + row * stride + i));
    }
    hn::StoreU(sums, d, sum + i);
  }
  if (i == n) return;
  const size_t left = size_t(n - i);
  auto sums = load_f32_n(d, sum + i, left);
  for (int64_t row = 0; row < num_rows; ++row) {
    sums = hn::Add(sums, load_f32_n(d, x + row * stride + i, left));
  }
  store_f32_n(d, sums, sum + i, left);
}

void sum_rows_of_float(float* sum, const float* x, int64_t stride, int64_t num_rows, int64_t n) {
  sum_all(sum, x, stride, num_rows, n);
}
void sum_rows_of_half(float* sum, const half* x, int64_t stride, int64_t num_rows, int64_t n) {
  sum_all(sum, x, stride, num_rows, n);
}
void sum_rows_of_bfloat16(float* sum, const bfloat16* x, int64_t stride, int64_t num_rows,
                          int64_t n) {
  sum_all(sum, x, stride, num_rows, n);
}
void round_to_half(half* y, const float* x, int64_t n) { round_all(y, x, n); }
void round_to_bfloat16(bfloat16* y, const float* x, int64_t n) { round_all(y, x, n); }
void scale(float* x, int64_t n, float factor) { transform(x, n, Scaled{factor}); }
void soft_cap(float* x, int64_t n, float cap) { transform(x, n, Capped{cap}); }

}  // namespace heddle::cpu::elementwise::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu::elementwise {
HWY_EXPORT(add);
HWY_EXPORT(scale);
HWY_EXPORT(soft_cap);
HWY_EXPORT(round_to_half);
HWY_EXPORT(round_to_bfloat16);
HWY_EXPORT(sum_rows_of_float);
HWY_EXPORT(sum_rows_of_half);
HWY_EXPORT(sum_rows_of_bfloat16);
void add(float* x, const float* y, int64_t n) { HWY_DYNAMIC_DISPATCH(add)(x, y, n); }
void scale(float* x, int64_t n, float factor) { HWY_DYNAMIC_DISPATCH(scale)(x, n, factor); }
void soft_cap(float* x, int64_t n, float cap) { HWY_DYNAMIC_DISPATCH(soft_cap)(x, n, cap); }
void round_to(half* y, const float* x, int64_t n) { HWY_DYNAMIC_DISPATCH(round_to_half)(y, x, n); }
void round_to(bfloat16* y, const float* x, int64_t n) {
  HWY_DYNAMIC_DISPATCH(round_to_bfloat16)(y, x, n);
}
void sum_rows(float* sum, const float* x, int64_t stride, int64_t num_rows, int64_t n) {
  HWY_DYNAMIC_DISPATCH(sum_rows_of_float)(sum, x, stride, num_rows, n);
}
void sum_rows(float* sum, const half* x, int64_t stride, int64_t num_rows, int64_t n) {
  HWY_DYNAMIC_DISPATCH(sum_rows_of_half)(sum, x, stride, num_rows, n);
}
void sum_rows(float* sum, const bfloat16* x, int64_t stride, int64_t num_rows, int64_t n) {
  HWY_DYNAMIC_DISPATCH(sum_rows_of_bfloat16)(sum, x, stride, num_rows, n);
}
}  // namespace heddle::cpu::elementwise
#endif
