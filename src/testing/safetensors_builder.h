#pragma once

#include <cstdint>
#include <cstring>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::testing {

/// A safetensors file of a header text and data, neither of them checked.
inline std::string safetensors_of(std::string_view header, std::string_view data) {
  const uint64_t size = header.size();
  std::string file(sizeof(size), '\0');
  std::memcpy(file.data(), &size, sizeof(size));
  return file.append(header).append(data);
}

/// Writes a safetensors file tensor by tensor, each where the one before ends.
class SafetensorsBuilder {
 public:
  SafetensorsBuilder& tensor(const std::string& name, const std::string& dtype,
                             const std::vector<int64_t>& shape, std::string_view data) {
    std::ostringstream entry;
    entry << (entries_.empty() ? "" : ",") << '"' << name << R"(":{"dtype":")" << dtype
          << R"(","shape":[)";
    for (size_t i = 0; i < shape.size(); ++i) entry << (i > 0 ? "," : "") << shape[i];
    entry << R"(],"data_offsets":[)" << data_.size() << ',' << data_.size() + data.size() << "]}";
    entries_ += entry.str();
    data_ += data;
    return *this;
  }
  [[nodiscard]] std::string build() const {
    return safetensors_of(std::string("{").append(entries_).append("}"), data_);
  }

 private:
  std::string entries_, data_;
};

}  // namespace heddle::testing
