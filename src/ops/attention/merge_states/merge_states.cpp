#include <algorithm>
#include <cmath>
#include <limits>

#include "heddle/config.h"
#include "heddle/core/check.h"
#include "heddle/core/dispatch.h"
#include "heddle/ops/attention.h"

#include "core/scoped_operation.h"
#include "ops/attention/merge_states/merge_states_cuda_params.h"
#include "ops/attention/merge_states/merge_states_kernels.h"
#include "ops/attention/paged/aligned_rows.h"

namespace heddle {
namespace {

constexpr int64_t kElementsPerTask = 16384;  // some 5 us: less is not worth another thread

struct Weights {
  float a, b, lse;
};

/// exp(lse_a - lse), exp(lse_b - lse) and lse, in double: the difference of two large numbers
/// decides.
Weights weigh(double lse_a, double lse_b) {
  const double max = std::max(lse_a, lse_b);
  if (max == -std::numeric_limits<double>::infinity()) {
    return {0.0f, 0.0f, -std::numeric_limits<float>::infinity()};
  }
  const double a = std::exp(lse_a - max), b = std::exp(lse_b - max);
  return {static_cast<float>(a / (a + b)), static_cast<float>(b / (a + b)),
          static_cast<float>(max + std::log(a + b))};
}

float element(const ConstTensorView& lse, int64_t t, int64_t h) {
  return lse.data<float>()[t * lse.stride(0) + h * lse.stride(1)];
}

template <class T>
const T* row(const ConstTensorView& o, int64_t t, int64_t h) {
  return o.data<T>() + t * o.stride(0) + h * o.stride(1);
}

cuda::attention::MergeParams::Sums sums(const ConstTensorView& lse) {
  if (!lse) return {};
  return {const_cast<float*>(lse.data<float>()), lse.stride(0), lse.stride(1)};
}

void merge_on_cuda(const ExecContext& ctx, const TensorView& o, const TensorView& lse,
                   const ConstTensorView& o_a, const ConstTensorView& lse_a,
                   const ConstTensorView& o_b, const ConstTensorView& lse_b) {
  if constexpr (kWithCuda) {
    const ScopedOperation operation("merge_states");
    using cuda::attention::begin_aligned, cuda::attention::kVectorBytes;
    const auto element = static_cast<int64_t>(size_of(o.dtype()));
    const auto rows = [&](const ConstTensorView& t) {
      const int64_t token = t.stride(0) * element, head = t.stride(1) * element;
      return cuda::attention::MergeParams::Rows{const_cast<std::byte*>(t.raw()), token, head};
    };
    cuda::attention::MergeParams p{.o = rows(o),
                                   .o_a = rows(o_a),
                                   .o_b = rows(o_b),
                                   .lse = sums(lse),
                                   .lse_a = sums(lse_a),
                                   .lse_b = sums(lse_b),
                                   .num_rows = o.size(0) * o.size(1),
                                   .num_heads = o.size(1),
                                   .dtype = o.dtype()};
    if (p.num_rows == 0) return;
    const bool is_vector = o.size(2) * element % kVectorBytes == 0 && begin_aligned(o) &&
                           begin_aligned(o_a) && begin_aligned(o_b);
    p.row_units = static_cast<int32_t>(is_vector ? o.size(2) * element / kVectorBytes : o.size(2));
    while (p.row_lanes > 1 && p.row_lanes / 2 >= p.row_units) p.row_lanes /= 2;
    cuda::attention::launch_merge_states(p, is_vector, ctx.stream);
  } else {
    throw_error(ErrorCode::kUnsupported, "merge_states: built without CUDA");
  }
}

}  // namespace

void merge_states(const ExecContext& ctx, TensorView o, TensorView lse, ConstTensorView o_a,
                  ConstTensorView lse_a, ConstTensorView o_b, ConstTensorView lse_b) {
  Dim tokens("num_tokens"), heads("num_q_heads"), head_dim("head_dim");
  check_shape("o_a", o_a, {&tokens, &heads, &head_dim});
  check_shape("o_b", o_b, {&tokens, &heads, &head_dim});
  check_shape("o", o, {&tokens, &heads, &head_dim});
  check_shape("lse_a", lse_a, {&tokens, &heads});
  check_shape("lse_b", lse_b, {&tokens, &heads});
  check_dtype("o_a", o_a, {DType::kFloat32, DType::kFloat16, DType::kBFloat16});
  check_dtype("o_b", o_b, {o_a.dtype()});
  check_dtype("o", o, {o_a.dtype()});
  check_dtype("lse_a", lse_a, {DType::kFloat32});
  check_dtype("lse_b", lse_b, {DType::kFloat32});
  check_unit_stride("o_a", o_a);
  check_unit_stride("o_b", o_b);
  check_unit_stride("o", o);
  if (lse) {
    check_shape("lse", lse, {&tokens, &heads});
    check_dtype("lse", lse, {DType::kFloat32});
  }
  check_device(
      ctx,
      {{"o", o}, {"lse", lse}, {"o_a", o_a}, {"lse_a", lse_a}, {"o_b", o_b}, {"lse_b", lse_b}});

  if (ctx.device.type == DeviceType::kCuda) {
    return merge_on_cuda(ctx, o, lse, o_a, lse_a, o_b, lse_b);
  }
  const int64_t num_rows = tokens.value() * heads.value();
  const int64_t grain =
      std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(1, head_dim.value()));
  dispatch_dtype<float, half, bfloat16>(o.dtype(), "merge_states", [&]<class T>() {
    parallel_for(ctx, num_rows, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t t = i / heads.value(), h = i % heads.value();
        const Weights weights = weigh(element(lse_a, t, h), element(lse_b, t, h));
        T* to = o.data<T>() + t * o.stride(0) + h * o.stride(1);
        cpu::attention::merge_row<T>(row<T>(o_a, t, h), weights.a, row<T>(o_b, t, h), weights.b,
                                     head_dim.value(), to);
        if (lse) lse.data<float>()[t * lse.stride(0) + h * lse.stride(1)] = weights.lse;
      }
    });
  });
}

}  // namespace heddle
