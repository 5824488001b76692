#pragma once

#include "heddle/c_api.h"
#include "heddle/core/overlap.h"
#include "heddle/dlpack.h"

// What C passes as what C++ takes. Errors name the argument.

namespace heddle::capi {

/// A pointer that must not be NULL.
template <class T>
T& required(const char* name, T* pointer) {
  HEDDLE_CHECK(pointer != nullptr, name, " is NULL");
  return *pointer;
}

/// A tensor, absent for NULL. Byte as in heddle::view.
template <class Byte>
BasicTensorView<Byte> view_or_absent(const char* name, const DLTensor* tensor) {
  if (tensor == nullptr) return {};
  BasicTensorView<Byte> result = view<Byte>(name, *tensor);
  HEDDLE_CHECK(result.raw() != nullptr || result.num_elements() == 0, name,
               ".data is NULL, but it has ", result.num_elements(), " elements");
  return result;
}

inline TensorView out_or_absent(const char* name, DLTensor* tensor) {
  const TensorView result = view_or_absent<std::byte>(name, tensor);
  check_no_overlap(name, result);
  return result;
}
inline TensorView out(const char* name, DLTensor* tensor) {
  return out_or_absent(name, &required(name, tensor));
}
inline ConstTensorView in(const char* name, const DLTensor* tensor) {
  return view_or_absent<const std::byte>(name, &required(name, tensor));
}
/// A tensor that is only read, for a struct that readers and writers share.
inline TensorView in_place(const char* name, DLTensor* tensor) {
  return view_or_absent<std::byte>(name, &required(name, tensor));
}
inline ConstTensorView in_or_absent(const char* name, const DLTensor* tensor) {
  return view_or_absent<const std::byte>(name, tensor);
}

/// For functions that cannot fail: a device of another kind counts as the CPU.
inline Device device_of(DLDevice device) {
  const bool is_cuda = device.device_type == kDLCUDA || device.device_type == kDLCUDAManaged;
  return {is_cuda ? DeviceType::kCuda : DeviceType::kCpu, device.device_id};
}

}  // namespace heddle::capi
