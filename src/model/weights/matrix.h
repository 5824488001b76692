#pragma once

#include "heddle/core/context.h"
#include "heddle/core/tensor_view.h"
#include "heddle/ops/embedding.h"
#include "heddle/ops/linear.h"
#include "heddle/ops/linear_site.h"

namespace heddle::model {

/// A matrix of a model in memory of its device. Packed for its product; on a GPU only where it has
/// quantised blocks, otherwise it lies there as rows, and `data` is null.
struct Matrix : PackedWeight {
  Matrix() = default;
  Matrix(const PackedWeight& packed) : PackedWeight(packed) {}
  /// [out_features, in_features] f16 or bf16 on a GPU.
  explicit Matrix(const ConstTensorView& dense)
      : PackedWeight{dense.dtype() == DType::kFloat16 ? WeightType::kF16 : WeightType::kBF16,
                     dense.size(0), dense.size(1), nullptr},
        rows(dense) {}

  ConstTensorView rows{};  // absent where it is packed

  /// Its product within a site on a GPU.
  [[nodiscard]] LinearSlice slice(const TensorView& y, const ConstTensorView& bias = {}) const {
    if (rows) return {.y = y, .weight = rows, .bias = bias};
    return {.y = y, .bias = bias, .packed = *this};
  }
};

/// y[t] = row token_ids[t] of the matrix, y [num_tokens, in_features] f32.
inline void embedding(const ExecContext& ctx, const TensorView& y, const ConstTensorView& token_ids,
                      const Matrix& matrix) {
  if (matrix.rows) return heddle::embedding(ctx, y, token_ids, matrix.rows);
  heddle::embedding(ctx, y, token_ids, static_cast<const PackedWeight&>(matrix));
}

/// y = x W^T of few rows: y [num_tokens, out_features] f32, x [num_tokens, in_features] of the
/// activations' dtype. On a GPU on the path of decode.
inline void product(const ExecContext& ctx, const TensorView& y, const ConstTensorView& x,
                    const Matrix& matrix) {
  if (ctx.device.type == DeviceType::kCpu) {
    return linear(ctx, y, x, static_cast<const PackedWeight&>(matrix));
  }
  const LinearSlice slice = matrix.slice(y);
  linear_site(ctx, {&slice, 1}, x, LinearPath::kDecode);
}

}  // namespace heddle::model
