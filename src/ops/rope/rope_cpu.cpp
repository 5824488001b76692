#include "heddle/core/dtype.h"

#include "ops/rope/rope_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/rope/rope_cpu.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// After foreach_target.h: compiled once per target.
#include "cpu/rotate-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::rope::HWY_NAMESPACE {
using namespace cpu::HWY_NAMESPACE;  // of cpu/vec-inl.h

template <class T>
void rotate_tokens(const RopeKernelParams& p, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    const float* cos = p.cos + t * p.cos_stride;
    const float* sin = p.sin + t * p.sin_stride;
    T* x = static_cast<T*>(p.x) + t * p.token_stride + p.first_pair;
    for (int64_t h = 0; h < p.num_heads; ++h, x += p.head_stride) {
      rotate_pairs(x, x + p.pair_distance, cos, sin, p.num_pairs, x, x + p.pair_distance);
    }
  }
}

void rope_f32(const RopeKernelParams& p, int64_t b, int64_t e) { rotate_tokens<float>(p, b, e); }
void rope_f16(const RopeKernelParams& p, int64_t b, int64_t e) { rotate_tokens<half>(p, b, e); }
void rope_bf16(const RopeKernelParams& p, int64_t b, int64_t e) {
  rotate_tokens<bfloat16>(p, b, e);
}

}  // namespace heddle::cpu::rope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu::rope {
HWY_EXPORT(rope_f32);
HWY_EXPORT(rope_f16);
HWY_EXPORT(rope_bf16);
template <>
void rope<float>(const RopeKernelParams& p, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(rope_f32)(p, begin, end);
}
template <>
void rope<half>(const RopeKernelParams& p, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(rope_f16)(p, begin, end);
}
template <>
void rope<bfloat16>(const RopeKernelParams& p, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(rope_bf16)(p, begin, end);
}
}  // namespace heddle::cpu::rope
#endif
