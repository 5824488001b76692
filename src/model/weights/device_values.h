#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "core/device_tensor.h"

namespace heddle::model {

/// [columns, rows] of [rows, columns].
[[nodiscard]] std::vector<float> transposed(const std::vector<float>& values, int64_t rows);
/// A tensor of these values on the context's device, each rounded to the dtype: f32, f16 or bf16.
[[nodiscard]] DeviceTensor tensor_of(const ExecContext& ctx, std::span<const float> values,
                                     std::initializer_list<int64_t> shape,
                                     DType dtype = DType::kFloat32);
/// The values of a tensor without gaps, of these types, that lies there.
[[nodiscard]] std::vector<float> host_floats(const ExecContext& ctx, const ConstTensorView& tensor);

}  // namespace heddle::model
