#pragma once

#include "ops/linear_site/prompt/prompt_params_cuda.h"

namespace heddle::cuda::linear_site {

/// The 16 rows that a warp has of a tile, and their outputs. Lane (g, q) = (lane / 4, lane % 4) has
/// of its sums
///   sum[4 j], sum[4 j + 1]       row g, outputs 8 j + 2 q and + 1
///   sum[4 j + 2], sum[4 j + 3]   row g + 8, the same outputs
struct WarpRows {
  const PromptSlice* slice;
  int slice_index;
  int first_row, num_rows;  // may be none
  int first_output, width;  // outputs that are left of the slice

  WarpRows() = default;
  __device__ WarpRows(const PromptParams& p, int slice_index, int first_row, int first_output)
      : slice(&p.slices[slice_index]),
        slice_index(slice_index),
        first_row(first_row),
        num_rows(min(16, p.num_rows - first_row)),
        first_output(first_output),
        width(slice->width - first_output) {}
};

}  // namespace heddle::cuda::linear_site
