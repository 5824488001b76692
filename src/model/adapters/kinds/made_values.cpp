#include "model/adapters/kinds/made_values.h"

#include <algorithm>
#include <span>
#include <utility>

namespace heddle::model {

StoredValues MadeValues::add(const std::string& path, std::string_view name, int64_t rows,
                             int64_t columns, Make make) {
  const size_t num_bytes = static_cast<size_t>(rows * columns) * sizeof(float);
  values_.push_back({std::move(make), files::ReservedBytes(num_bytes, path)});
  return {DType::kFloat32, rows, columns, values_.back().floats.bytes().data(), name};
}

StoredValues MadeValues::add_floats(const std::string& path, const StoredValues& values) {
  if (values.dtype == DType::kFloat32) return values;
  return add(path, values.name, values.rows, values.columns, [values] { return values.floats(); });
}

void MadeValues::make(const std::string& path) {
  for (Values& values : values_) {
    const std::vector<float> made = values.make();
    std::ranges::copy(std::as_bytes(std::span(made)), values.floats.fill(path).begin());
  }
}

}  // namespace heddle::model
