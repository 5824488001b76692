#pragma once

#include <cstddef>
#include <cstdint>

#include "heddle/core/context.h"
#include "heddle/core/dtype.h"
#include "heddle/core/tensor_view.h"

namespace heddle {

/// The tensors of y = T(f(gate) * up), as kernels take them: each [num_tokens, width] of `dtype`,
/// the last axis without gaps.
struct GatedParams {
  std::byte* y;
  const std::byte *gate, *up;
  int64_t y_stride, gate_stride, up_stride;  // bytes between rows
  int64_t num_tokens, width;
  DType dtype;
};

/// Checks shapes, dtypes, devices and strides, and packs.
[[nodiscard]] GatedParams pack_gated(const ExecContext& ctx, const TensorView& y,
                                     const ConstTensorView& gate, const ConstTensorView& up);

/// On the CPU: calls columns(row, begin, end) for pieces that make up all rows, on the threads of
/// the context.
void for_gated_tasks(const ExecContext& ctx, const GatedParams& p,
                     FunctionRef<void(int64_t, int64_t, int64_t)> columns);

}  // namespace heddle
