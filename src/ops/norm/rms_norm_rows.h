#pragma once

#include <array>
#include <cstdint>

#include "heddle/core/tensor_view.h"
#include "heddle/core/thread_pool.h"

#include "ops/norm/rms_norm_kernels.h"

namespace heddle {

/// The tensors whose rows are counted together: output, residual, input.
inline constexpr size_t kRowTensors = 3;
template <class T>
using PerRowTensor = std::array<T, kRowTensors>;

/// The axes before the last of tensors of one shape. Axes of one element are left out, and
/// neighbours that every tensor can count as one are one. Strides are bytes; those of an absent
/// tensor are 0.
struct RowAxes {
  int num_axes = 0;
  std::array<int64_t, kMaxRank> sizes{};
  std::array<PerRowTensor<int64_t>, kMaxRank> strides{};

  friend bool operator==(const RowAxes&, const RowAxes&) = default;
};
[[nodiscard]] RowAxes merge_row_axes(const PerRowTensor<ConstTensorView>& tensors);

/// Rows of one launch, in up to kRmsNormAxes axes, the innermost last.
struct RowBlock {
  int64_t first_row = 0;            // of all rows in their order
  PerRowTensor<int64_t> offsets{};  // bytes of that row
  std::array<uint32_t, cuda::norm::kRmsNormAxes> sizes{1, 1, 1};
  std::array<PerRowTensor<int64_t>, cuda::norm::kRmsNormAxes> strides{};
};
/// All rows, in blocks of at most max_rows: one where three axes and max_rows do. Throws
/// kUnsupported where one axis alone is longer.
void for_each_row_block(const RowAxes& axes, int64_t max_rows,
                        FunctionRef<void(const RowBlock&)> body);

}  // namespace heddle
