#pragma once

#include "heddle/ops/rope.h"

namespace heddle {

// Checked calls on a GPU.

/// factors: on the device, of the table's columns, or nullptr.
void run_rope_table_cuda(const ExecContext& ctx, const TensorView& cos, const TensorView& sin,
                         const ConstTensorView& positions, const RopeParams& params,
                         const float* factors);
void run_rope_cuda(const ExecContext& ctx, const TensorView& x, const ConstTensorView& cos,
                   const ConstTensorView& sin);
void run_rope_cuda(const ExecContext& ctx, const TensorView& x, const ConstTensorView& positions,
                   const RopeParams& params, int num_pairs);

}  // namespace heddle
