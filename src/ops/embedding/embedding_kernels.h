#pragma once

#include <cstddef>
#include <cstdint>

#include "heddle/core/context.h"
#include "heddle/core/dtype.h"
#include "heddle/core/tensor_view.h"

namespace heddle {

namespace cpu::embedding {
/// y[i] = f32(row[i]) for i < width. row: f16 or bf16.
void widen_row(float* y, const std::byte* row, DType dtype, int64_t width);
}  // namespace cpu::embedding

namespace cuda::embedding {
/// Arguments are checked, and y is not empty.
void run(const ExecContext& ctx, const TensorView& y, const ConstTensorView& token_ids,
         const ConstTensorView& table);
}  // namespace cuda::embedding

}  // namespace heddle
