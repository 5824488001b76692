#pragma once

#include <cstdint>

#include <cuda.h>

#include "heddle/core/tensor_view.h"

namespace heddle::cuda {

/// Describes a matrix to the copy engine: f16 or bf16, columns without gaps, 16-byte aligned with
/// rows multiples of 16 bytes apart. Boxes are [box_rows, 64]: rows of 128 bytes with a swizzle of
/// 128 bytes, as products take them (wgmma_cuda.h). box_rows: 1 to 256.
[[nodiscard]] CUtensorMap make_tensor_map(const ConstTensorView& matrix, int box_rows);

}  // namespace heddle::cuda
