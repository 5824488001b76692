#pragma once

#include <Python.h>
#include <array>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>

#include "heddle/core/tensor_view.h"

namespace heddle::python {

namespace nb = nanobind;

enum class Access : uint8_t { kRead, kWrite };

/// Borrows the memory of Python arrays, without a copy, and keeps it alive until it goes out of
/// scope (with the GIL held).
///
/// An array is whatever offers, in this order: the buffer protocol (NumPy), the C functions of
/// `__dlpack_c_exchange_api__` (torch 2.10 and later), or `__dlpack__` (CuPy, JAX, older torch);
/// and NumPy's bfloat16 of ml_dtypes, which has no buffer, through `__array_struct__`. For
/// writing, read-only memory is refused, elements that overlap, and a leaf that requires grad.
class BorrowedArrays {
 public:
  BorrowedArrays() = default;
  ~BorrowedArrays();
  BorrowedArrays(const BorrowedArrays&) = delete;
  BorrowedArrays& operator=(const BorrowedArrays&) = delete;

  /// View of `array`; `name` is the tensor's in errors. All arrays of a call must be on one device.
  [[nodiscard]] TensorView borrow(const char* name, nb::handle array, Access access);

  /// use(name, item) for each item of a list or tuple, with names such as "states[2]". All are kept
  /// alive whatever becomes of the list.
  template <class Use>
  void for_each(const char* name, nb::handle list, const Use& use) {
    nb::tuple items = nb::steal<nb::tuple>(PySequence_Tuple(list.ptr()));
    if (!items.is_valid()) throw nb::python_error();
    size_t index = 0;
    for (const nb::handle item : items) {
      names_.push_back(std::string(name) + "[" + std::to_string(index++) + "]");
      use(names_.back().c_str(), item);
    }
    owners_.push_back(std::move(items));
  }
  /// Views of the arrays of a list or tuple.
  template <class View>
  [[nodiscard]] std::vector<View> borrow_all(const char* name, nb::handle arrays, Access access) {
    std::vector<View> views;
    for_each(name, arrays, [&](const char* of_one, nb::handle array) {
      views.push_back(borrow(of_one, array, access));
    });
    return views;
  }

  /// Keeps the object alive as well: for views that outlive the call.
  void keep(nb::handle object) { owners_.push_back(nb::borrow(object)); }

  [[nodiscard]] Device device() const { return device_; }
  /// The CUDA stream of the call, nullptr for the default stream and on the CPU: the one that the
  /// framework of the first array on a GPU works on at this moment. Arrays of frameworks that work
  /// on another are asked to be ready on it.
  [[nodiscard]] void* stream() const { return stream_.value_or(nullptr); }

 private:
  [[nodiscard]] TensorView from_buffer(const char* name, nb::handle array, Access access);
  [[nodiscard]] TensorView from_array_struct(const char* name, nb::handle array, Access access);
  [[nodiscard]] TensorView from_exchange(const char* name, nb::handle array, Access access,
                                         const void* api);
  [[nodiscard]] TensorView from_capsule(const char* name, nb::handle array, Access access);
  Py_buffer& next_buffer();

  // A Py_buffer may point into itself, so it must not move; few calls need more than the first
  // few.
  std::array<Py_buffer, 12> first_buffers_;  // NOLINT: filled up to num_buffers_
  std::list<Py_buffer> more_buffers_;
  size_t num_buffers_ = 0;
  std::vector<nb::object> owners_;
  std::list<std::string> names_;      // of what is in lists
  const char* first_name_ = nullptr;  // of the array that fixed device_
  Device device_;
  std::optional<void*> stream_;             // once an array is on a GPU
  const void* stream_framework_ = nullptr;  // the exchange table of one that works on stream_
};

}  // namespace heddle::python
