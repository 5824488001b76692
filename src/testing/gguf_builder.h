#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/math.h"

namespace heddle::testing {

/// Appends the bytes of a number as they lie in memory.
template <class T>
void append(std::string& out, T value) {
  static_assert(std::is_trivially_copyable_v<T>);
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

/// Writes a GGUF file in memory, value by value and tensor by tensor. It checks nothing, so it
/// writes wrong files too.
class GgufBuilder {
 public:
  uint32_t version = 3;
  uint64_t alignment = 32;  // of the data; written as general.alignment only by value()

  template <class T>
  GgufBuilder& value(std::string_view key, T v) {
    begin_value(key, type_id<T>());
    put(values_, v);
    return *this;
  }
  template <class T>
  GgufBuilder& array(std::string_view key, const std::vector<T>& elements) {
    begin_value(key, kArray);
    append(values_, type_id<T>());
    append(values_, uint64_t{elements.size()});
    for (const auto& element : elements) put(values_, T(element));
    return *this;
  }
  /// A value given byte by byte, `type` its number.
  GgufBuilder& raw_value(std::string_view key, uint32_t type, std::string_view bytes) {
    begin_value(key, type);
    values_ += bytes;
    return *this;
  }
  /// dims as in the file, the contiguous one first.
  GgufBuilder& tensor(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type,
                      std::string_view data) {
    return raw_tensor(name, dims, type, data_.size(), data);
  }
  GgufBuilder& raw_tensor(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type,
                          uint64_t offset, std::string_view data) {
    ++num_tensors_;
    put(tensors_, name);
    append(tensors_, static_cast<uint32_t>(dims.size()));
    for (const uint64_t extent : dims) append(tensors_, extent);
    append(tensors_, type);
    append(tensors_, offset);
    data_ += data;
    pad(data_);
    return *this;
  }

  [[nodiscard]] std::string build() const {
    std::string file = "GGUF";
    append(file, version);
    append(file, num_tensors_);
    append(file, num_values_);
    file += values_ + tensors_;
    if (!data_.empty()) pad(file);
    return file + data_;
  }

 private:
  static constexpr uint32_t kString = 8, kArray = 9;

  template <class T>
  static constexpr uint32_t type_id() {
    if constexpr (std::is_same_v<T, bool>)
      return 7;
    else if constexpr (std::is_convertible_v<T, std::string_view>)
      return kString;
    else if constexpr (std::is_same_v<T, float>)
      return 6;
    else if constexpr (std::is_same_v<T, double>)
      return 12;
    else
      return (sizeof(T) == 8   ? 10
              : sizeof(T) == 4 ? 4
              : sizeof(T) == 2 ? 2
                               : 0) +
             std::is_signed_v<T>;
  }
  template <class T>
  static void put(std::string& out, const T& v) {
    if constexpr (std::is_convertible_v<T, std::string_view>) {
      const std::string_view text = v;
      append(out, uint64_t{text.size()});
      out += text;
    } else {
      append(out, v);
    }
  }
  void begin_value(std::string_view key, uint32_t type) {
    ++num_values_;
    put(values_, key);
    append(values_, type);
  }
  void pad(std::string& out) const { out.resize(round_up(out.size(), alignment)); }

  uint64_t num_values_ = 0, num_tensors_ = 0;
  std::string values_, tensors_, data_;
};

}  // namespace heddle::testing
