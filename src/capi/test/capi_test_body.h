#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/c_api.h"
#include "heddle/core/context.h"
#include "heddle/core/tensor_view.h"
#include "heddle/dlpack.h"

#include "compare.h"
#include "random.h"

namespace heddle::testing {

/// A DLTensor of memory that is somebody else's. Only for tests.
class CTensor {
 public:
  template <class T>
  CTensor(T* data, std::initializer_list<int64_t> shape,
          std::initializer_list<int64_t> strides = {})
      : shape_(shape), strides_(strides) {
    tensor_.data = data;
    tensor_.device = {kDLCPU, 0};
    tensor_.ndim = static_cast<int32_t>(shape.size());
    tensor_.dtype = type_of(kDType<T>);
    tensor_.shape = shape_.data();
    tensor_.strides = strides_.empty() ? nullptr : strides_.data();
    tensor_.byte_offset = 0;
  }
  CTensor(const CTensor&) = delete;
  CTensor& operator=(const CTensor&) = delete;

  [[nodiscard]] DLTensor* get() const { return &tensor_; }

  static DLDataType type_of(DType dtype) {
    const auto bits = static_cast<uint8_t>(8 * size_of(dtype));
    switch (dtype) {
      case DType::kFloat32:
      case DType::kFloat16: return {kDLFloat, bits, 1};
      case DType::kBFloat16: return {kDLBfloat, bits, 1};
      case DType::kUInt8:
      case DType::kBool: return {kDLUInt, bits, 1};
      case DType::kFloat8E4M3: return {kDlpackFloat8E4m3fn, bits, 1};
      default: return {kDLInt, bits, 1};
    }
  }

 private:
  std::vector<int64_t> shape_, strides_;
  mutable DLTensor tensor_{};
};

/// A row-major array of its own that C sees as a DLTensor and C++ as a view.
template <class T>
struct Array {
  std::vector<int64_t> shape;
  std::vector<T> values;

  explicit Array(std::vector<int64_t> extents) : shape(std::move(extents)) {
    values.resize(static_cast<size_t>(view().num_elements()));
  }
  Array(std::vector<int64_t> extents, std::vector<T> elements)
      : shape(std::move(extents)), values(std::move(elements)) {}

  [[nodiscard]] TensorView view() {
    return {reinterpret_cast<std::byte*>(values.data()), kDType<T>, {}, shape};
  }
  /// Good until the next call of c() or change of this array.
  [[nodiscard]] DLTensor* c() {
    tensor_ = {.data = values.data(),
               .device = {kDLCPU, 0},
               .ndim = static_cast<int32_t>(shape.size()),
               .dtype = CTensor::type_of(kDType<T>),
               .shape = shape.data(),
               .strides = nullptr,
               .byte_offset = 0};
    return &tensor_;
  }
  friend bool operator==(const Array& a, const Array& b) {
    return same_bits<T>(a.values, b.values);
  }

 private:
  DLTensor tensor_{};
};

template <class T = float>
Array<T> random_array(std::vector<int64_t> shape) {
  Array<T> result(std::move(shape));
  result.values = random_normal<T>(result.values.size());
  return result;
}

/// A context on the CPU while it lives.
class Context {
 public:
  explicit Context(int num_threads, size_t workspace_bytes = size_t{1} << 20) {
    heddle_context_options options;
    heddle_context_options_init(&options);
    options.num_threads = num_threads;
    options.workspace_bytes = workspace_bytes;
    EXPECT_EQ(heddle_context_create(&context_, &options), HEDDLE_OK) << heddle_last_error();
  }
  ~Context() { heddle_context_destroy(context_); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  operator heddle_context*() const { return context_; }  // NOLINT(google-explicit-constructor)

 private:
  heddle_context* context_ = nullptr;
};

/// A context of each language, for tests that a C function gives the bits of its C++ counterpart,
/// and its options the same defaults.
class CApiOps : public ::testing::Test {
 protected:
  Context context{2};
  std::vector<std::byte> memory = std::vector<std::byte>(1 << 20);
  Workspace workspace{memory};
  ExecContext ctx;

  CApiOps() { ctx.workspace = &workspace; }
};

inline void expect_ok(heddle_status status) { EXPECT_EQ(status, HEDDLE_OK) << heddle_last_error(); }

/// Expects a call that failed with `status`, and a message that begins with `message`.
inline void expect_failure(heddle_status status, const std::string& message, heddle_status got) {
  EXPECT_EQ(got, status) << heddle_last_error();
  EXPECT_EQ(std::string(heddle_last_error()).substr(0, message.size()), message);
}

}  // namespace heddle::testing
