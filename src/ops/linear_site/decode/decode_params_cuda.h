#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/fault.h"
#include <cuda.h>

#include "heddle/core/dtype.h"
#include "heddle/ops/linear_site.h"

#include "ops/linear_site/decode/exchange.h"
#include "ops/linear_site/decode/select_kernel.h"
#include "ops/linear_site/decode/shared_layout.h"
#include "ops/lora_device/window_plan.h"

namespace heddle::cuda::linear_site {

/// By what a row's sums of B h are multiplied; not used for rows without an adapter.
struct RowFactor {
  float value = 0.0f;
  bool is_used = false;
};

struct DecodeSlice {
  void* y;           // the launch's first row
  int64_t y_stride;  // elements
  const void* bias;  // of the weights' dtype, or null
  int32_t width;     // outputs
  int32_t end_tile;  // tiles of this slice and those before
};

/// A x of the adapters of a launch, for the kernel before it.
struct ShrinkParams {
  const lora::WindowPlan* plan;
  float* partials;  // [slice][chain][row of partial sums][16]
  const LoraWeight* a;
  int32_t a_stride;  // from slot to slot
  int32_t num_slots, num_slices, num_chunks, num_chains, last_tile;
  uint32_t plan_tag;
  int32_t in_features;
  const void* x;
  int64_t x_stride;
  XSignal* signal;  // null: no kernel waits for it
};

/// The adapters of a launch, as lora_apply's kernels have them (ops/lora_device/sums.h).
struct DecodeAdapters {
  const lora::WindowPlan* plan;  // null: no adapters
  const float* partials;         // as in ShrinkParams
  const LoraWeight *a, *b;
  int32_t a_stride, b_stride;  // from slot to slot
  int32_t num_slots, num_chains, max_rank, h_steps;
  uint32_t plan_tag;
  const float* row_scale;
  XSignal* signal;  // null: x is ready when A x is
};

/// One launch: up to 64 rows for each warpgroup, up to kMaxSlices slices of a site.
struct DecodeParams {
  CUtensorMap x;
  CUtensorMap weights[kMaxSlices];
  DecodeSlice slices[kMaxSlices];
  DecodeAdapters adapters;
  int32_t num_slices, num_tiles, num_rows;
  int32_t num_boxes;     // of a row of x
  int32_t cluster_size;  // blocks that share the features of a tile
  int32_t x_box_rows;    // of one copy: num_rows, rounded up to 8
  int32_t stage_boxes;   // boxes of a stage, of either ring
  int32_t weight_stages, x_stages;
  int32_t max_loading;  // stages of weights in flight
  DType y_dtype;
  FaultRecord* faults;
};

[[nodiscard]] constexpr SharedLayout shared_layout(const DecodeParams& p, int tile_outputs,
                                                   int groups) {
  return SharedLayout({.tile_outputs = tile_outputs,
                       .groups = groups,
                       .cluster_size = p.cluster_size,
                       .num_rows = p.num_rows,
                       .max_rank = p.adapters.plan != nullptr ? p.adapters.max_rank : 0,
                       .stage_boxes = p.stage_boxes,
                       .weight_stages = p.weight_stages,
                       .x_stages = p.x_stages});
}

/// What adapters add to the products of a site, which lie as f32 in one matrix.
struct ExpandParams {
  DecodeParams site;  // without weights, x and bias; tiles of kExpandTileOutputs
  const float* products;
  int64_t products_stride;            // elements
  int32_t first_columns[kMaxSlices];  // of the slices
};
inline constexpr int kExpandTileOutputs = 64;
/// Of a block: more than every chip has, and no more than those of 8.0 have.
inline constexpr int kExpandLargeBytes = 163 * 1024;

[[nodiscard]] constexpr SharedLayout expand_layout(int num_rows, int max_rank) {
  return SharedLayout({.tile_outputs = kExpandTileOutputs,
                       .groups = num_rows > kGroupRows ? 2 : 1,
                       .cluster_size = 1,
                       .num_rows = num_rows,
                       .max_rank = max_rank});
}
[[nodiscard]] constexpr SharedLayout shared_layout(const ExpandParams& p) {
  return expand_layout(p.site.num_rows, p.site.adapters.max_rank);
}

/// Runs the kernel of A x in so many blocks, likewise.
template <class T>
void launch_shrink(const ShrinkParams& p, int num_blocks, int device, cudaStream_t stream);

/// Runs the kernel of B h after other products, in a block for each tile.
template <class T>
void launch_expand(const ExpandParams& p, int device, cudaStream_t stream);

/// Runs the kernel of this shape in `num_blocks` blocks on `device`, the current one.
template <class T>
void launch_decode(const DecodeParams& p, const SiteKernel& kernel, int device,
                   cudaStream_t stream);

}  // namespace heddle::cuda::linear_site
