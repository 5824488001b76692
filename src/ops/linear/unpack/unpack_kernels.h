#pragma once

#include <cstdint>

#include "heddle/core/context.h"
#include "heddle/core/tensor_view.h"
#include "heddle/ops/linear.h"

namespace heddle::cuda::linear {

/// y[t] = row token_ids[t] of the weight, in y's dtype, f32|f16|bf16; zeros for other ids.
/// Arguments are checked, and y is not empty.
void embedding(const ExecContext& ctx, const TensorView& y, const ConstTensorView& token_ids,
               const PackedWeight& weight);

/// y[i] = row first_output + i of the weight, rounded to y's dtype. y may be the weight of a
/// linear_site call after it.
void dequantize_rows(const ExecContext& ctx, const TensorView& y, const PackedWeight& weight,
                     int64_t first_output);

}  // namespace heddle::cuda::linear
