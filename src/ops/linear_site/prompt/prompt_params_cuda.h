#pragma once

#include <cstdint>

#include "cuda/divide.h"
#include <cuda.h>

#include "heddle/core/dtype.h"
#include "heddle/ops/lora.h"

#include "ops/linear_site/run/select_prompt.h"
#include "ops/lora_device/grouped/grouped_params.h"

namespace heddle::cuda::linear_site {

inline constexpr int kPromptMaxSlices = 4;  // of one launch

struct PromptSlice {
  void* y;
  int64_t y_stride;  // elements
  const void* bias;  // of the weights' dtype, or null
  int32_t width;     // outputs
  int32_t end_tile;  // output tiles of this slice and those before
  bool has_vectors;  // rows of y begin at 16 bytes and are a multiple of them
};

/// The adapters of a launch: h = A x is there, as join of lora_apply's grouped route leaves it, and
/// the products with B are made beside those of W.
struct PromptAdapters {
  const lora::RowAdapter* rows;  // [slice][row]; null: no adapters
  const std::byte* h;            // [slice][row in the plan's order][vectors of 16 bytes]
  const LoraWeight* b;           // entries of the first slice
  int64_t h_slice_bytes;
  int32_t h_row_vectors;
  int32_t b_stride;      // from slot to slot
  int32_t first_output;  // of B, for output 0 of the launch, which may have a part of a slice
};

/// One launch: all rows, up to kPromptMaxSlices slices of a site.
struct PromptParams {
  CUtensorMap x;
  CUtensorMap weights[kPromptMaxSlices];
  CUtensorMap y[kPromptMaxSlices];  // of 16 bits, with has_vectors
  PromptSlice slices[kPromptMaxSlices];
  PromptAdapters adapters;
  int32_t num_rows, num_slices;
  int32_t num_steps;         // of 64 features
  int32_t num_output_tiles;  // of all slices
  int32_t num_row_units;     // row tiles, of which a cluster has one for each of its blocks
  int32_t group_units;       // row units that follow each other before the next output tile comes
  int32_t last_group;        // which may have fewer
  FastDivisor of_tiles;      // divides by the tiles of a group
  FastDivisor of_units, of_last_units;  // by the row units of a group, and of the last one
  int32_t cluster_size;
  DType y_dtype;
};

/// Runs the kernel of this shape on `device`, the current one.
template <class T>
void launch_prompt(const PromptParams& p, const PromptKernel& kernel, int device,
                   cudaStream_t stream);

}  // namespace heddle::cuda::linear_site
