#pragma once

#include <cstdint>

#include "cuda/divide.h"
#include "cuda/fault.h"

#include "heddle/core/dtype.h"

#include "ops/lora_device/weight_addresses.h"
#include "ops/lora_device/window_plan.h"

namespace heddle::cuda::lora {

struct SliceParams {
  void* y;           // the window's first row, the slice's first column
  int64_t y_stride;  // elements
  int32_t width;     // out_features; of shrink the columns of y
  // Work items of this slice and those before, of one row tile; [1]: items twice as large.
  int32_t end[2];
};

/// One launch: rows of a window, up to kMaxSlices slices of a site.
struct SiteParams {
  const WindowPlan* plan;
  uint32_t plan_tag;  // that the plan has if it is of this batch
  int32_t num_rows;   // of y that the launch may write
  FaultRecord* faults;
  const void* input;     // x or h: the window's first row
  int64_t input_stride;  // elements
  int64_t in_features;
  WeightAddresses a, b;
  int32_t num_slices, num_chunks, items_per_row_tile[2];
  int32_t last_tile;  // that the plan has memory for
  int32_t max_rank;   // the smaller one of the tables
  Reciprocal chunk_reciprocal, slice_reciprocal, row_tile_reciprocal[2], block_reciprocal;
  float scale;
  const float* row_scale;  // of the window's rows, or nullptr
  float* partials;         // [slice][chunk][row of a tile][16]; null where the input is h
  SliceParams slices[kMaxSlices];
  DType input_dtype, y_dtype;
  bool accumulate, is_transposed_a, is_transposed_b, is_input_aligned;

  /// The op whose launch this is.
  [[nodiscard]] constexpr const char* op() const {
    if (a.max_rank == 0) return "lora_expand";
    return b.max_rank == 0 ? "lora_shrink" : "lora_apply";
  }
};

}  // namespace heddle::cuda::lora
