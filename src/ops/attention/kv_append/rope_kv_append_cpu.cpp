#include "heddle/core/dtype.h"

#include "ops/attention/kv_append/rope_kv_append_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/attention/kv_append/rope_kv_append_cpu.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// After foreach_target.h: compiled once per target.
#include "cpu/rotate-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::attention::HWY_NAMESPACE {
using namespace heddle::cpu::HWY_NAMESPACE;  // the toolbox: hn, load_f32, store_f32, ...

template <class T>
void rotate(const T* x, const float* cos, const float* sin, int num_pairs, int head_dim, T* out) {
  rotate_pairs(x, x + num_pairs, cos, sin, num_pairs, out, out + num_pairs);
  for (int i = 2 * num_pairs; i < head_dim; ++i) out[i] = x[i];
}

void rotate_f32(const float* x, const float* cos, const float* sin, int num_pairs, int head_dim,
                float* out) {
  rotate(x, cos, sin, num_pairs, head_dim, out);
}
void rotate_f16(const half* x, const float* cos, const float* sin, int num_pairs, int head_dim,
                half* out) {
  rotate(x, cos, sin, num_pairs, head_dim, out);
}
void rotate_bf16(const bfloat16* x, const float* cos, const float* sin, int num_pairs, int head_dim,
                 bfloat16* out) {
  rotate(x, cos, sin, num_pairs, head_dim, out);
}

}  // namespace heddle::cpu::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu::attention {
HWY_EXPORT(rotate_f32);
HWY_EXPORT(rotate_f16);
HWY_EXPORT(rotate_bf16);
template <>
void rotate_head(const float* x, const float* cos, const float* sin, int num_pairs, int head_dim,
                 float* out) {
  HWY_DYNAMIC_DISPATCH(rotate_f32)(x, cos, sin, num_pairs, head_dim, out);
}
template <>
void rotate_head(const half* x, const float* cos, const float* sin, int num_pairs, int head_dim,
                 half* out) {
  HWY_DYNAMIC_DISPATCH(rotate_f16)(x, cos, sin, num_pairs, head_dim, out);
}
template <>
void rotate_head(const bfloat16* x, const float* cos, const float* sin, int num_pairs, int head_dim,
                 bfloat16* out) {
  HWY_DYNAMIC_DISPATCH(rotate_bf16)(x, cos, sin, num_pairs, head_dim, out);
}
}  // namespace heddle::cpu::attention
#endif
