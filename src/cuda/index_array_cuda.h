#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace heddle::cuda {

/// A vector of i32 or i64 in a kernel's parameters, read and written as i64. Byte is `std::byte` or `const std::byte`. One without
/// data is absent and drops what is stored.
template <class Byte>
class BasicDeviceIndices {
 public:
  BasicDeviceIndices() = default;
  __host__ __device__ BasicDeviceIndices(Byte* data, int64_t step_bytes, bool is_wide)
      : data_(data), step_(step_bytes | int64_t{is_wide}) {}

  /// Loads words rather than choosing between loads of 4 and 8 bytes: they are joined where the value is needed, so that no load
  /// waits for the one before.
  __device__ int64_t operator[](int64_t i) const {
    const auto* words = reinterpret_cast<const int32_t*>(element(i));
    const int32_t low = words[0];
    const int32_t high = is_wide() ? words[1] : 0;
    return is_wide() ? static_cast<int64_t>(high) << 32 | static_cast<uint32_t>(low) : int64_t{low};
  }
  __device__ void set(int64_t i, int64_t value) const requires(!std::is_const_v<Byte>) {
    if (data_ == nullptr) return;
    if (is_wide()) {
      *reinterpret_cast<int64_t*>(element(i)) = value;
    } else {
      *reinterpret_cast<int32_t*>(element(i)) = static_cast<int32_t>(value);
    }
  }
  /// The lower 32 bits of element i, which is all of an i32.
  __device__ uint32_t low_word(int64_t i) const {
    return *reinterpret_cast<const uint32_t*>(element(i));
  }
  [[nodiscard]] __device__ Byte* element(int64_t i) const { return data_ + i * (step_ & ~1); }
  /// Brings the line of element i into the first cache, which a later load then finds there. Nothing waits for it.
  __device__ void touch(int64_t i) const {
    int32_t ignored;
    asm volatile("ld.global.b32 %0, [%1];" : "=r"(ignored) : "l"(element(i)));
  }

 private:
  // Steps are multiples of 4: their lowest bit is free to tell the type.
  [[nodiscard]] __device__ bool is_wide() const { return (step_ & 1) != 0; }

  Byte* data_ = nullptr;
  int64_t step_ = 0;  // bytes, plus 1 for i64
};
using DeviceIndices = BasicDeviceIndices<const std::byte>;
using MutableDeviceIndices = BasicDeviceIndices<std::byte>;

/// Rows of such.
template <class Byte>
class BasicDeviceIndexRows {
 public:
  BasicDeviceIndexRows() = default;
  BasicDeviceIndexRows(Byte* data, int64_t row_step_bytes, int64_t column_step_bytes, bool is_wide)
      : data_(data),
        row_step_(row_step_bytes),
        column_step_(column_step_bytes),
        is_wide_(is_wide) {}

  [[nodiscard]] __device__ BasicDeviceIndices<Byte> row(int64_t i) const {
    return {data_ == nullptr ? nullptr : data_ + i * row_step_, column_step_, is_wide_};
  }

 private:
  Byte* data_ = nullptr;
  int64_t row_step_ = 0, column_step_ = 0;  // bytes
  bool is_wide_ = false;
};
using DeviceIndexRows = BasicDeviceIndexRows<const std::byte>;
using MutableDeviceIndexRows = BasicDeviceIndexRows<std::byte>;

/// A number that the host knows, or that lies on the device, in [0, limit].
struct DeviceCount {
  DeviceIndices element;  // where `on_device`
  int64_t value, limit;
  bool on_device;

  [[nodiscard]] __device__ int64_t read() const {
    const int64_t n = on_device ? element[0] : value;
    return n < 0 ? 0 : n < limit ? n : limit;
  }
};

// What the CPU's parameters hold (cpu/index_array.h, cpu/count_reader.h) as kernels take it.

template <class Vector>
  requires requires(const Vector& v) { v.step_bytes(); }
[[nodiscard]] auto on_device(const Vector& v) {
  return BasicDeviceIndices(v.data(), v.step_bytes(), v.is_wide());
}
template <class Matrix>
  requires requires(const Matrix& m) { m.row_step_bytes(); }
[[nodiscard]] auto on_device(const Matrix& m) {
  return BasicDeviceIndexRows(m.data(), m.row_step_bytes(), m.column_step_bytes(), m.is_wide());
}
template <class Reader>
  requires requires(const Reader& r) { r.host_value(); }
[[nodiscard]] DeviceCount on_device(const Reader& r) {
  return {on_device(r.element()), r.host_value(), r.limit(), r.on_device()};
}

}  // namespace heddle::cuda
