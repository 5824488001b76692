#pragma once

#include <cstdint>

#include "heddle/core/context.h"
#include "heddle/core/dtype.h"

namespace heddle::cuda::linear_site {

/// One slice of a site, any addresses and strides, any number of rows.
struct GeneralParams {
  void* y;
  const void *x, *weight, *bias;              // the last may be null
  int64_t y_stride, x_stride, weight_stride;  // elements
  int64_t num_rows, in_features, width;
  DType y_dtype;
  bool has_x_vectors, has_weight_vectors;  // rows that can be loaded 16 bytes at a time
};

template <class T>
void launch_general(const ExecContext& ctx, const GeneralParams& p);

/// Rows as they come, or narrowed: to[r][i] = To(from[r][i]).
struct RowCopy {
  void* to;
  const void* from;
  int64_t to_stride, from_stride, num_rows, width;  // elements
};
/// Of 16 bits each.
void copy_rows(const ExecContext& ctx, const RowCopy& p);
/// From f32, rounded to T.
template <class T>
void narrow_rows(const ExecContext& ctx, const RowCopy& p);

}  // namespace heddle::cuda::linear_site
