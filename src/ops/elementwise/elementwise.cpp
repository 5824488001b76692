#include "heddle/ops/elementwise.h"

#include <limits>

#include "heddle/core/check.h"

#include "cpu/row_tasks.h"
#include "ops/elementwise/elementwise_kernels.h"

namespace heddle {
namespace {

/// Checks x, then calls elements(first, count) for pieces that make up its rows.
template <class Elements>
void for_elements(const ExecContext& ctx, const char* op, const TensorView& x,
                  Elements&& elements) {
  check_cpu(ctx, op);
  check_device(ctx, {{"x", x}});
  Dim tokens("num_tokens"), width("width");
  check_shape("x", x, {&tokens, &width});
  check_dtype("x", x, {DType::kFloat32});
  check_unit_stride("x", x);
  cpu::for_row_tasks(ctx, tokens.value(), width.value(),
                     [&](int64_t row, int64_t begin, int64_t end) {
                       elements(x.data<float>() + row * x.stride(0) + begin, end - begin);
                     });
}

}  // namespace

void add(const ExecContext& ctx, TensorView x, ConstTensorView y) {
  check_cpu(ctx, "add");
  check_device(ctx, {{"x", x}, {"y", y}});
  Dim tokens("num_tokens"), width("width");
  check_shape("x", x, {&tokens, &width});
  check_shape("y", y, {&tokens, &width});
  check_dtype("x", x, {DType::kFloat32});
  check_dtype("y", y, {DType::kFloat32});
  check_unit_stride("x", x);
  check_unit_stride("y", y);
  cpu::for_row_tasks(
      ctx, tokens.value(), width.value(), [&](int64_t row, int64_t begin, int64_t end) {
        cpu::elementwise::add(x.data<float>() + row * x.stride(0) + begin,
                              y.data<float>() + row * y.stride(0) + begin, end - begin);
      });
}

void scale(const ExecContext& ctx, TensorView x, float factor) {
  for_elements(ctx, "scale", x,
               [&](float* first, int64_t n) { cpu::elementwise::scale(first, n, factor); });
}

void soft_cap(const ExecContext& ctx, TensorView x, float cap) {
  HEDDLE_CHECK(cap > 0.0f && cap <= std::numeric_limits<float>::max(), "soft_cap: cap is ", cap,
               ", expected a finite number above 0");
  for_elements(ctx, "soft_cap", x,
               [&](float* first, int64_t n) { cpu::elementwise::soft_cap(first, n, cap); });
}

}  // namespace heddle
