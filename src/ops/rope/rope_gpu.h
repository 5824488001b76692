#pragma once

#include "heddle/ops/rope.h"

namespace heddle {

// Checked calls on a GPU. All throw kUnsupported in a build without CUDA.

/// factors: on the device, of the table's columns, or nullptr.
void rope_table_on_gpu(const ExecContext& ctx, const TensorView& cos, const TensorView& sin,
                       const ConstTensorView& positions, const RopeParams& params,
                       const float* factors);
void rope_on_gpu(const ExecContext& ctx, const TensorView& x, const ConstTensorView& cos,
                 const ConstTensorView& sin);
void rope_on_gpu(const ExecContext& ctx, const TensorView& x, const ConstTensorView& positions,
                 const RopeParams& params, int num_pairs);

}  // namespace heddle
