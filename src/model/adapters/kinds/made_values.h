#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "files/reserved_bytes.h"
#include "model/adapters/adapter.h"

namespace heddle::model {

/// Values that an adapter's file has in another form than the engine reads: products, transposes
/// and conversions of its tensors, made when the adapter is loaded. They have addresses from the
/// start, and take memory from `make` on.
class MadeValues {
 public:
  /// Row-major. May read the file's tensors, and what was added before.
  using Make = std::function<std::vector<float>()>;

  /// `path` and `name`, of the tensor that the values come from, are for errors.
  StoredValues add(const std::string& path, std::string_view name, int64_t rows, int64_t columns,
                   Make make);
  /// The same values in f32.
  StoredValues add_floats(const std::string& path, const StoredValues& values);
  void make(const std::string& path);

 private:
  struct Values {
    Make make;
    files::ReservedBytes floats;
  };
  std::vector<Values> values_;
};

}  // namespace heddle::model
