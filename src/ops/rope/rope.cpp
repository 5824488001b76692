#include "heddle/ops/rope.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "heddle/config.h"
#include "heddle/core/check.h"
#include "heddle/core/dispatch.h"

#include "core/scoped_operation.h"
#include "cpu/index_array.h"
#include "ops/rope/rope_kernels.h"
#include "ops/rope/run_cuda.h"

namespace heddle {
namespace {

constexpr int kPairsAtOnce = 64;  // angles that are kept on the stack
constexpr int64_t kElementsPerTask =
    16384;                               // some 2 us of rotation: less is not worth another thread
constexpr int64_t kAnglesPerTask = 256;  // some 10 us of sine and cosine

/// Whether a call goes to the GPU. Throws where this build has no kernels for one.
bool runs_on_gpu(const ExecContext& ctx, const char* op) {
  if (ctx.device.type == DeviceType::kCpu) return false;
  if (!kWithCuda) throw_error(ErrorCode::kUnsupported, op, ": built without CUDA");
  return true;
}

void check_params(const ExecContext& ctx, const RopeParams& params, int64_t rotary_dim) {
  check_rope_params(ctx, params);
  HEDDLE_CHECK(rotary_dim % 2 == 0, "rotary_dim is ", rotary_dim, ", expected an even number");
}

/// Grain of a loop over tokens that cost `unit` each, so that a task costs about `task`.
int64_t tokens_per_task(int64_t task, int64_t unit) {
  return std::max<int64_t>(1, task / std::max<int64_t>(1, unit));
}

/// Calls body(first, frequencies of the pairs from `first` on) for one block of pairs after the
/// other. factors [num_pairs] divide the frequencies unless null.
template <class Body>
void for_frequencies(const RopeParams& params, int num_pairs, const float* factors, Body&& body) {
  double frequencies[kPairsAtOnce];
  for (int first = 0; first < num_pairs; first += kPairsAtOnce) {
    const int count = std::min(kPairsAtOnce, num_pairs - first);
    for (int d = 0; d < count; ++d) {
      frequencies[d] = rope_frequency(params, 2 * num_pairs, first + d);
      if (factors != nullptr) frequencies[d] /= static_cast<double>(factors[first + d]);
    }
    body(first, std::span<const double>(frequencies, static_cast<size_t>(count)));
  }
}

/// The cosines and sines of a position, times attention_factor.
void fill_angles(int64_t position, std::span<const double> frequencies, double attention_factor,
                 float* cos, float* sin) {
  for (size_t d = 0; d < frequencies.size(); ++d) {
    const double angle = static_cast<double>(position) * frequencies[d];
    cos[d] = static_cast<float>(attention_factor * std::cos(angle));
    sin[d] = static_cast<float>(attention_factor * std::sin(angle));
  }
}

void rotate(const ExecContext& ctx, DType dtype, const RopeKernelParams& params,
            int64_t num_tokens) {
  const int64_t grain = tokens_per_task(kElementsPerTask, 2 * params.num_heads * params.num_pairs);
  dispatch_dtype<float, half, bfloat16>(dtype, "rope", [&]<class T>() {
    parallel_for(ctx, num_tokens, grain,
                 [&](int64_t begin, int64_t end) { cpu::rope::rope<T>(params, begin, end); });
  });
}

RopeKernelParams pack(const TensorView& x) {
  return {.x = x.raw(),
          .token_stride = x.stride(0),
          .head_stride = x.stride(1),
          .num_heads = x.size(1)};
}

}  // namespace

void rope_table(const ExecContext& ctx, TensorView cos, TensorView sin, ConstTensorView positions,
                const RopeParams& params, ConstTensorView frequency_factors) {
  Dim tokens("num_tokens"), pairs("rotary_dim / 2");
  if (params.rotary_dim != 0) pairs.bind(params.rotary_dim / 2);
  check_shape("positions", positions, {&tokens});
  check_shape("cos", cos, {&tokens, &pairs});
  check_shape("sin", sin, {&tokens, &pairs});
  check_dtype("positions", positions, {DType::kInt32, DType::kInt64});
  check_dtype("cos", cos, {DType::kFloat32});
  check_dtype("sin", sin, {DType::kFloat32});
  check_unit_stride("cos", cos);
  check_unit_stride("sin", sin);
  check_device(ctx, {{"cos", cos},
                     {"sin", sin},
                     {"positions", positions},
                     {"frequency_factors", frequency_factors}});
  const float* factors = nullptr;
  if (frequency_factors) {
    check_shape("frequency_factors", frequency_factors, {&pairs});
    check_dtype("frequency_factors", frequency_factors, {DType::kFloat32});
    check_unit_stride("frequency_factors", frequency_factors);
    factors = frequency_factors.data<float>();
  }
  const int num_pairs = static_cast<int>(pairs.value());
  // A table has attention_factor on every device.
  check_params(ExecContext{}, params, params.rotary_dim != 0 ? params.rotary_dim : 2 * num_pairs);

  if (runs_on_gpu(ctx, "rope_table")) {
    const ScopedOperation operation("rope_table");
    if constexpr (kWithCuda) run_rope_table_cuda(ctx, cos, sin, positions, params, factors);
    return;
  }
  const cpu::IndexArray position(positions);
  for_frequencies(params, num_pairs, factors, [&](int first, std::span<const double> frequencies) {
    parallel_for(ctx, tokens.value(), tokens_per_task(kAnglesPerTask, std::ssize(frequencies)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t t = begin; t < end; ++t) {
                     fill_angles(position[t], frequencies, params.attention_factor,
                                 cos.data<float>() + t * cos.stride(0) + first,
                                 sin.data<float>() + t * sin.stride(0) + first);
                   }
                 });
  });
}

void rope(const ExecContext& ctx, TensorView x, ConstTensorView cos, ConstTensorView sin) {
  Dim tokens("num_tokens"), heads("num_heads"), head_dim("head_dim"), pairs("rotary_dim / 2");
  check_shape("x", x, {&tokens, &heads, &head_dim});
  check_shape("cos", cos, {&tokens, &pairs});
  check_shape("sin", sin, {&tokens, &pairs});
  check_dtype("x", x, {DType::kFloat32, DType::kFloat16, DType::kBFloat16});
  check_dtype("cos", cos, {DType::kFloat32});
  check_dtype("sin", sin, {DType::kFloat32});
  check_unit_stride("x", x);
  check_unit_stride("cos", cos);
  check_unit_stride("sin", sin);
  check_device(ctx, {{"x", x}, {"cos", cos}, {"sin", sin}});
  HEDDLE_CHECK(2 * pairs.value() <= head_dim.value(), "cos.size(1) is ", pairs.value(),
               ", expected at most half of head_dim = ", head_dim.value());

  if (runs_on_gpu(ctx, "rope")) {
    const ScopedOperation operation("rope");
    if constexpr (kWithCuda) run_rope_cuda(ctx, x, cos, sin);
    return;
  }
  RopeKernelParams params = pack(x);
  params.cos = cos.data<float>();
  params.sin = sin.data<float>();
  params.cos_stride = cos.stride(0);
  params.sin_stride = sin.stride(0);
  params.pair_distance = params.num_pairs = pairs.value();
  rotate(ctx, x.dtype(), params, tokens.value());
}

void rope(const ExecContext& ctx, TensorView x, ConstTensorView positions,
          const RopeParams& params) {
  Dim tokens("num_tokens"), heads("num_heads"), head_dim("head_dim");
  check_shape("x", x, {&tokens, &heads, &head_dim});
  check_shape("positions", positions, {&tokens});
  check_dtype("x", x, {DType::kFloat32, DType::kFloat16, DType::kBFloat16});
  check_dtype("positions", positions, {DType::kInt32, DType::kInt64});
  check_unit_stride("x", x);
  check_device(ctx, {{"x", x}, {"positions", positions}});
  const int64_t rotary_dim = params.rotary_dim != 0 ? params.rotary_dim : head_dim.value();
  check_params(ctx, params, rotary_dim);
  HEDDLE_CHECK(0 <= rotary_dim && rotary_dim <= head_dim.value(), "rotary_dim is ", rotary_dim,
               ", expected at most head_dim = ", head_dim.value());

  const int num_pairs = static_cast<int>(rotary_dim / 2);
  if (runs_on_gpu(ctx, "rope")) {
    const ScopedOperation operation("rope");
    if constexpr (kWithCuda) run_rope_cuda(ctx, x, positions, params, num_pairs);
    return;
  }
  const cpu::IndexArray position(positions);
  const RopeKernelParams all = pack(x);
  dispatch_dtype<float, half, bfloat16>(x.dtype(), "rope", [&]<class T>() {
    for_frequencies(
        params, num_pairs, nullptr, [&](int first, std::span<const double> frequencies) {
          parallel_for(ctx, tokens.value(),
                       tokens_per_task(kAnglesPerTask, std::ssize(frequencies)),
                       [&](int64_t begin, int64_t end) {
                         float cos[kPairsAtOnce], sin[kPairsAtOnce];
                         RopeKernelParams p = all;
                         p.cos = cos;
                         p.sin = sin;
                         p.pair_distance = num_pairs;
                         p.first_pair = first;
                         p.num_pairs = std::ssize(frequencies);
                         for (int64_t t = begin; t < end; ++t) {
                           fill_angles(position[t], frequencies, params.attention_factor, cos, sin);
                           p.x = static_cast<T*>(all.x) + t * all.token_stride;
                           cpu::rope::rope<T>(p, 0, 1);
                         }
                       });
        });
  });
}

}  // namespace heddle
