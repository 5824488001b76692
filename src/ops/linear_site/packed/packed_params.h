#pragma once

#include <cstddef>
#include <cstdint>

#include "heddle/core/context.h"
#include "heddle/core/dtype.h"
#include "heddle/ops/linear.h"

#include "ops/linear_site/decode/exchange.h"

namespace heddle::cuda::linear_site {

inline constexpr int kMaxPackedSlices = 4;

struct PackedSlice {
  void* y;           // the launch's first row
  int64_t y_stride;  // elements
  const void* bias;  // of x's dtype, or null
  const std::byte* weight;
  int32_t width;     // outputs
  int32_t end_tile;  // tiles of this slice and those before
};

/// One launch: some rows, and up to four slices whose weights have one format.
struct PackedParams {
  PackedSlice slices[kMaxPackedSlices];
  const void* x;     // rows that begin at 16 bytes
  int64_t x_stride;  // elements
  int32_t num_slices, num_rows, in_features;
  int32_t cluster_size;  // blocks that share the features of a tile
  DType y_dtype;
  // The previous kernel is A x, which signals by this that x is ready. Null: x is ready when the
  // previous kernel has ended.
  const XSignal* signal;
};

/// Multiplies all rows, some at a time; sets what depends on the format.
template <class T>
void launch_packed(const ExecContext& ctx, PackedParams p, WeightType type);
/// The same on compute capability 9.0, all rows in one launch.
template <class T>
void launch_packed_sm90(const ExecContext& ctx, const PackedParams& p, WeightType type);

}  // namespace heddle::cuda::linear_site
