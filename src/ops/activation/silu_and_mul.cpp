#include "heddle/core/check.h"
#include "heddle/ops/activation.h"

#include "core/math.h"
#include "ops/activation/silu_and_mul_kernels.h"

namespace heddle {
namespace {

constexpr int64_t kPieceWidth = 4096;        // columns; long rows are shared among threads, too
constexpr int64_t kElementsPerChunk = 8192;  // some microseconds of work

int64_t row_stride_bytes(const ConstTensorView& t) {
  return t.stride(0) * int64_t(size_of(t.dtype()));
}

}  // namespace

void silu_and_mul(const ExecContext& ctx, TensorView y, ConstTensorView gate, ConstTensorView up) {
  check_cpu(ctx, "silu_and_mul");
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
  if (gate.num_elements() == 0) return;

  const SiluAndMulParams p{.y = y.raw(),
                           .gate = gate.raw(),
                           .up = up.raw(),
                           .y_stride = row_stride_bytes(y),
                           .gate_stride = row_stride_bytes(gate),
                           .up_stride = row_stride_bytes(up),
                           .dtype = gate.dtype()};
  const int64_t row_width = width.value();
  const int64_t pieces = ceil_div(row_width, kPieceWidth);
  const int64_t piece_width = row_width < kPieceWidth ? row_width : kPieceWidth;
  const int64_t grain = ceil_div(kElementsPerChunk, piece_width);
  parallel_for(ctx, tokens.value() * pieces, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % pieces * kPieceWidth;
      const int64_t last = first + kPieceWidth < row_width ? first + kPieceWidth : row_width;
      cpu::activation::silu_and_mul(p, i / pieces, first, last);
    }
  });
}

}  // namespace heddle
