#include "model/weights/device_values.h"

#include "heddle/core/dispatch.h"

namespace heddle::model {

std::vector<float> transposed(const std::vector<float>& values, int64_t rows) {
  const auto num_rows = static_cast<size_t>(rows), columns = values.size() / num_rows;
  std::vector<float> result(values.size());
  for (size_t row = 0; row < num_rows; ++row) {
    for (size_t column = 0; column < columns; ++column) {
      result[column * num_rows + row] = values[row * columns + column];
    }
  }
  return result;
}

DeviceTensor tensor_of(const ExecContext& ctx, std::span<const float> values,
                       std::initializer_list<int64_t> shape, DType dtype) {
  DeviceTensor tensor(ctx.device, dtype, shape);
  dispatch_dtype<float, half, bfloat16>(dtype, "an adapter", [&]<class T>() {
    std::vector<T> rounded;
    rounded.reserve(values.size());
    for (const float value : values) rounded.push_back(from_float<T>(value));
    copy_from_host(ctx, tensor.view().raw(), std::as_bytes(std::span(rounded)));
  });
  return tensor;
}

std::vector<float> host_floats(const ExecContext& ctx, const ConstTensorView& tensor) {
  std::vector<float> floats;
  dispatch_dtype<float, half, bfloat16>(tensor.dtype(), "a tensor", [&]<class T>() {
    std::vector<T> values(static_cast<size_t>(tensor.num_elements()));
    copy_to_host(ctx, std::span(values), tensor);
    floats.reserve(values.size());
    for (const T& value : values) floats.push_back(to_float(value));
  });
  return floats;
}

}  // namespace heddle::model
