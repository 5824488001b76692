#include "heddle/ops/elementwise.h"

#include <algorithm>
#include <limits>

#include "heddle/config.h"
#include "heddle/core/check.h"
#include "heddle/core/dispatch.h"

#include "core/scoped_operation.h"
#include "cpu/row_tasks.h"
#include "ops/elementwise/elementwise_kernels.h"

namespace heddle {
namespace {

using cuda::elementwise::ElementwiseParams;

/// Checks the result, of f32 but where it is what `round_to` writes, and the operand where there is
/// one, and packs them.
ElementwiseParams pack(const ExecContext& ctx, const char* result_name, const TensorView& result,
                       std::initializer_list<DType> dtypes, const char* operand_name,
                       const ConstTensorView& operand, float number) {
  check_device(ctx, {{result_name, result}, {operand_name, operand}});
  Dim tokens("num_tokens"), width("width");
  check_shape(result_name, result, {&tokens, &width});
  check_dtype(result_name, result, dtypes);
  check_unit_stride(result_name, result);
  ElementwiseParams p{};
  if (operand) {
    check_shape(operand_name, operand, {&tokens, &width});
    check_dtype(operand_name, operand, {DType::kFloat32});
    check_unit_stride(operand_name, operand);
    p.operand = operand.data<float>();
    p.operand_stride = operand.stride(0);
  }
  p.result = result.raw();
  p.result_stride = result.stride(0);
  p.num_tokens = tokens.value();
  p.width = width.value();
  p.number = number;
  return p;
}

/// Where the context is of the CPU, calls elements(result, operand, count) for pieces that make up
/// the rows, else the function for the GPU.
template <class T, class Elements, class OnGpu>
void run(const ExecContext& ctx, const char* op, const ElementwiseParams& p,
         const Elements& elements, const OnGpu& on_gpu) {
  if (ctx.device.type == DeviceType::kCpu) {
    cpu::for_row_tasks(ctx, p.num_tokens, p.width, [&](int64_t row, int64_t begin, int64_t end) {
      T* const result = reinterpret_cast<T*>(p.result) + row * p.result_stride + begin;
      const float* const operand =
          p.operand == nullptr ? nullptr : p.operand + row * p.operand_stride + begin;
      elements(result, operand, end - begin);
    });
  } else if constexpr (kWithCuda) {
    const ScopedOperation operation(op);
    on_gpu();
  } else {
    throw_error(ErrorCode::kUnsupported, op, ": built without CUDA");
  }
}

}  // namespace

void add(const ExecContext& ctx, TensorView x, ConstTensorView y) {
  const ElementwiseParams p = pack(ctx, "x", x, {DType::kFloat32}, "y", y, 0.0f);
  run<float>(
      ctx, "add", p, [](float* to, const float* y, int64_t n) { cpu::elementwise::add(to, y, n); },
      [&] { cuda::elementwise::add(ctx, p); });
}

void scale(const ExecContext& ctx, TensorView x, float factor) {
  const ElementwiseParams p = pack(ctx, "x", x, {DType::kFloat32}, "", {}, factor);
  run<float>(
      ctx, "scale", p,
      [&](float* to, const float*, int64_t n) { cpu::elementwise::scale(to, n, factor); },
      [&] { cuda::elementwise::scale(ctx, p); });
}

void soft_cap(const ExecContext& ctx, TensorView x, float cap) {
  HEDDLE_CHECK(cap > 0.0f && cap <= std::numeric_limits<float>::max(), "soft_cap: cap is ", cap,
               ", expected a finite number above 0");
  const ElementwiseParams p = pack(ctx, "x", x, {DType::kFloat32}, "", {}, cap);
  run<float>(
      ctx, "soft_cap", p,
      [&](float* to, const float*, int64_t n) { cpu::elementwise::soft_cap(to, n, cap); },
      [&] { cuda::elementwise::soft_cap(ctx, p); });
}

void round_to(const ExecContext& ctx, TensorView y, ConstTensorView x) {
  HEDDLE_CHECK(static_cast<bool>(x), "x is absent");
  const ElementwiseParams p = pack(ctx, "y", y, {DType::kFloat16, DType::kBFloat16}, "x", x, 0.0f);
  dispatch_dtype<half, bfloat16>(y.dtype(), "round_to", [&]<class T>() {
    run<T>(
        ctx, "round_to", p,
        [](T* to, const float* x, int64_t n) { cpu::elementwise::round_to(to, x, n); },
        [&] { cuda::elementwise::round_to(ctx, p, y.dtype()); });
  });
}

void sum_rows(const ExecContext& ctx, TensorView sum, ConstTensorView x, SumStart start) {
  check_device(ctx, {{"sum", sum}, {"x", x}});
  Dim rows("num_rows"), width("width");
  check_shape("x", x, {&rows, &width});
  check_shape("sum", sum, {&width});
  check_dtype("sum", sum, {DType::kFloat32});
  check_dtype("x", x, {DType::kFloat32, DType::kFloat16, DType::kBFloat16});
  check_unit_stride("sum", sum);
  check_unit_stride("x", x);
  const bool from_zero = start == SumStart::kZero;
  if (ctx.device.type == DeviceType::kCpu) {
    dispatch_dtype<float, half, bfloat16>(x.dtype(), "sum_rows", [&]<class T>() {
      cpu::for_row_tasks(ctx, 1, width.value(), [&](int64_t /*row*/, int64_t begin, int64_t end) {
        float* const to = sum.data<float>() + begin;
        if (from_zero) std::fill_n(to, end - begin, 0.0f);
        cpu::elementwise::sum_rows(to, x.data<T>() + begin, x.stride(0), rows.value(), end - begin);
      });
    });
  } else if constexpr (kWithCuda) {
    const ScopedOperation operation("sum_rows");
    cuda::elementwise::sum_rows(ctx,
                                {.sum = sum.data<float>(),
                                 .x = x.raw(),
                                 .stride = x.stride(0),
                                 .num_rows = rows.value(),
                                 .width = width.value(),
                                 .from_zero = from_zero},
                                x.dtype());
  } else {
    throw_error(ErrorCode::kUnsupported, "sum_rows: built without CUDA");
  }
}

}  // namespace heddle
