#pragma once

#include <cstdint>

#include "cuda/check.h"

#include "heddle/core/dtype.h"

#include "ops/linear_site/portable/portable_shape.h"
#include "ops/linear_site/portable/select_portable.h"
#include "ops/linear_site/prompt/prompt_params_cuda.h"

namespace heddle::cuda::linear_site {

inline constexpr int kPortableMaxSlices = kMaxLaunchSlices;

struct PortableSlice {
  void* y;                          // the launch's first row
  const void* weight;               // rows begin at 16 bytes
  const void* bias;                 // of the weights' dtype, or null
  int64_t y_stride, weight_stride;  // elements
  int32_t width;                    // outputs
  int32_t end_tile;                 // tiles of this slice and those before
  bool has_y_pairs;                 // rows of y begin at a multiple of two elements
  bool has_y_vectors;               // and at one of 16 bytes
};

/// What both kernels take: up to four slices of a site.
struct PortableParams {
  PortableSlice slices[kPortableMaxSlices];
  const void* x;     // rows begin at 16 bytes
  int64_t x_stride;  // elements
  int32_t num_slices, num_rows, in_features;
  int32_t num_steps;  // of kPortableStepFeatures
  int32_t num_tiles;  // of outputs, of all slices
  DType y_dtype;
};

/// One launch of up to kMaxLaunchRows rows.
struct PortableDecodeParams : PortableParams {
  float4* parts;         // of sums, [tile][split][16 outputs][8 rows][lane]
  uint32_t* counters;    // of each tile, zero before and after
  int32_t num_splits;    // blocks that share the features of a tile
  int32_t tile_outputs;  // a multiple of 16
  int32_t stage_boxes;   // of kPortableStepFeatures, of a stage
};

/// One launch of any number of rows.
struct PortablePromptParams : PortableParams {
  PromptAdapters adapters;
  int32_t num_row_tiles;
  int32_t group_tiles;  // row tiles that follow each other before the next output tile comes
};

/// Runs the kernel of this shape on `device`, the current one.
template <class T>
void launch_portable(const PortableDecodeParams& p, const PortableKernel& kernel, int device,
                     cudaStream_t stream);
template <class T>
void launch_portable(const PortablePromptParams& p, const PortableKernel& kernel, int device,
                     cudaStream_t stream);

}  // namespace heddle::cuda::linear_site
