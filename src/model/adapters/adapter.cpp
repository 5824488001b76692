#include "model/adapters/adapter.h"

#include <cstring>

#include "heddle/core/dispatch.h"

namespace heddle::model {

StoredValues StoredValues::narrow(int64_t first, int64_t count) const {
  return {dtype, count, columns, data + static_cast<size_t>(first * columns) * size_of(dtype)};
}

std::vector<float> StoredValues::floats() const {
  std::vector<float> values(static_cast<size_t>(num_elements()));
  dispatch_dtype<float, half, bfloat16>(dtype, "an adapter", [&]<class T>() {
    for (size_t i = 0; i < values.size(); ++i) {
      T value;
      std::memcpy(&value, data + i * sizeof(T), sizeof(T));
      values[i] = to_float(value);
    }
  });
  return values;
}

}  // namespace heddle::model
