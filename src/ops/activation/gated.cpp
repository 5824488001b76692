#include "ops/activation/gated.h"

#include "heddle/core/check.h"

#include "cpu/row_tasks.h"

namespace heddle {
namespace {

int64_t row_stride_bytes(const ConstTensorView& t) {
  return t.stride(0) * static_cast<int64_t>(size_of(t.dtype()));
}

}  // namespace

GatedParams pack_gated(const ExecContext& ctx, const TensorView& y, const ConstTensorView& gate,
                       const ConstTensorView& up) {
  check_device(ctx, {{"y", y}, {"gate", gate}, {"up", up}});
  Dim tokens("num_tokens"), width("width");
  check_shape("gate", gate, {&tokens, &width});
  check_shape("up", up, {&tokens, &width});
  check_shape("y", y, {&tokens, &width});
  check_dtype("gate", gate, {DType::kFloat32, DType::kFloat16, DType::kBFloat16});
  HEDDLE_CHECK(up.dtype() == gate.dtype(), "up is ", up.dtype(), ", but gate is ", gate.dtype());
  HEDDLE_CHECK(y.dtype() == gate.dtype(), "y is ", y.dtype(), ", but gate is ", gate.dtype());
  check_unit_stride("gate", gate);
  check_unit_stride("up", up);
  check_unit_stride("y", y);
  return {.y = y.raw(),
          .gate = gate.raw(),
          .up = up.raw(),
          .y_stride = row_stride_bytes(y),
          .gate_stride = row_stride_bytes(gate),
          .up_stride = row_stride_bytes(up),
          .num_tokens = tokens.value(),
          .width = width.value(),
          .dtype = gate.dtype()};
}

void for_gated_tasks(const ExecContext& ctx, const GatedParams& p,
                     FunctionRef<void(int64_t, int64_t, int64_t)> columns) {
  cpu::for_row_tasks(ctx, p.num_tokens, p.width, columns);
}

}  // namespace heddle
