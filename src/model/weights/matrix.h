#pragma once

#include "heddle/core/context.h"
#include "heddle/core/tensor_view.h"
#include "heddle/ops/embedding.h"
#include "heddle/ops/linear.h"
#include "heddle/ops/linear_site.h"

namespace heddle::model {

/// A matrix of a model in memory of its device, in one of two forms: packed for its product, or as
/// rows, on a GPU where it has no quantised blocks.
struct Matrix {
  Matrix() = default;
  explicit Matrix(const PackedWeight& packed)
      : type(packed.type),
        out_features(packed.out_features),
        in_features(packed.in_features),
        data(packed.data) {}
  /// [out_features, in_features] f16 or bf16 on a GPU.
  explicit Matrix(const ConstTensorView& dense)
      : type(dense.dtype() == DType::kFloat16 ? WeightType::kF16 : WeightType::kBF16),
        out_features(dense.size(0)),
        in_features(dense.size(1)),
        rows(dense) {}

  WeightType type = WeightType::kF32;
  int64_t out_features = 0, in_features = 0;
  const std::byte* data = nullptr;  // packed; null where it lies as rows
  ConstTensorView rows{};           // absent where it is packed

  [[nodiscard]] PackedWeight packed() const { return {type, out_features, in_features, data}; }
  /// Its product within a site on a GPU.
  [[nodiscard]] LinearSlice slice(const TensorView& y, const ConstTensorView& bias = {}) const {
    if (rows) return {.y = y, .weight = rows, .bias = bias};
    return {.y = y, .bias = bias, .packed = packed()};
  }
};

/// y[t] = row token_ids[t] of the matrix, y [num_tokens, in_features] f32.
inline void embedding(const ExecContext& ctx, const TensorView& y, const ConstTensorView& token_ids,
                      const Matrix& matrix) {
  if (matrix.rows) return heddle::embedding(ctx, y, token_ids, matrix.rows);
  heddle::embedding(ctx, y, token_ids, matrix.packed());
}

/// y = x W^T of few rows: y [num_tokens, out_features] f32, x [num_tokens, in_features] of the
/// activations' dtype. On a GPU on the path of decode.
inline void product(const ExecContext& ctx, const TensorView& y, const ConstTensorView& x,
                    const Matrix& matrix, LinearActivations activations) {
  if (ctx.device.type == DeviceType::kCpu) return linear(ctx, y, x, matrix.packed(), activations);
  const LinearSlice slice = matrix.slice(y);
  linear_site(ctx, {&slice, 1}, x, LinearPath::kDecode);
}

}  // namespace heddle::model
