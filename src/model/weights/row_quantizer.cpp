#include "model/weights/row_quantizer.h"

#include <cmath>

#include "heddle/core/error.h"

#include "files/printable.h"

namespace heddle::model {

double Quantization::relative_error() const {
  return squared_values > 0 ? std::sqrt(squared_difference / squared_values) : 0.0;
}

WeightType RowQuantizer::type_of(const StoredTensor& tensor) {
  if (block_size(tensor.type) > 1 || tensor.type == type_) return tensor.type;
  if (tensor.columns % block_size(type_) != 0) {
    ++result_.num_kept;
    return tensor.type;
  }
  result_.from.insert(tensor.type);
  return type_;
}

std::span<const std::byte> RowQuantizer::quantize(const StoredTensor& tensor, int64_t first_row,
                                                  std::span<const std::byte> rows) {
  const int64_t columns = tensor.columns;
  const size_t row_bytes = stored_bytes(tensor.type, columns);
  const auto num_rows = static_cast<int64_t>(rows.size() / row_bytes);
  values_.resize(static_cast<size_t>(num_rows * columns));
  stored_.resize(stored_bytes(type_, num_rows * columns));
  parallel_for(ctx_, num_rows, 1, [&](int64_t begin, int64_t end) {
    const auto count = static_cast<size_t>((end - begin) * columns);
    dequantize(std::span(values_).subspan(static_cast<size_t>(begin * columns), count), tensor.type,
               rows.subspan(static_cast<size_t>(begin) * row_bytes,
                            static_cast<size_t>(end - begin) * row_bytes));
  });
  try {
    heddle::quantize(ctx_, stored_, type_, values_);
  } catch (const Error& error) {
    throw_error(error.code(), *tensor.path, ": tensor ", files::quote(tensor.name),
                " cannot be packed to ", type_, ": from row ", first_row, " on ", error.what());
  }
  measure(num_rows, columns);
  return stored_;
}

/// Sums of rows, added in the order of the rows: the same for any number of threads.
void RowQuantizer::measure(int64_t num_rows, int64_t columns) {
  back_.resize(values_.size());
  differences_.assign(static_cast<size_t>(num_rows), 0.0);
  squares_.assign(static_cast<size_t>(num_rows), 0.0);
  const size_t row_bytes = stored_bytes(type_, columns);
  parallel_for(ctx_, num_rows, 1, [&](int64_t begin, int64_t end) {
    for (auto row = static_cast<size_t>(begin); row < static_cast<size_t>(end); ++row) {
      const auto size = static_cast<size_t>(columns);
      const std::span<float> back = std::span(back_).subspan(row * size, size);
      dequantize(back, type_, std::span(stored_).subspan(row * row_bytes, row_bytes));
      const float* values = values_.data() + row * size;
      for (size_t i = 0; i < size; ++i) {
        const double value = values[i], difference = double{back[i]} - value;
        differences_[row] += difference * difference;
        squares_[row] += value * value;
      }
    }
  });
  for (const double sum : differences_) result_.squared_difference += sum;
  for (const double sum : squares_) result_.squared_values += sum;
}

}  // namespace heddle::model
