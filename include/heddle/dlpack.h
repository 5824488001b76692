#pragma once

#include <algorithm>
#include <cstdint>
#include <dlpack/dlpack.h>
#include <span>

#include "heddle/core/tensor_view.h"

namespace heddle {

/// Type code of booleans; DLPack's header names it from version 0.8 on.
inline constexpr uint8_t kDlpackBool = 6;
/// DLPack's type code of float8_e4m3fn, from version 1.1 on.
inline constexpr uint8_t kDlpackFloat8E4m3fn = 10;

/// The dtype of one-lane DLPack elements; throws kUnsupported, naming `tensor`, for those that
/// heddle has no name for.
[[nodiscard]] inline DType dtype_of(const char* tensor, DLDataType type) {
  struct Known {
    uint8_t code, bits;
    DType dtype;
  };
  constexpr Known known[] = {
      {kDLFloat, 32, DType::kFloat32},   {kDLFloat, 16, DType::kFloat16},
      {kDLBfloat, 16, DType::kBFloat16}, {kDLInt, 32, DType::kInt32},
      {kDLInt, 64, DType::kInt64},       {kDLUInt, 8, DType::kUInt8},
      {kDlpackBool, 8, DType::kBool},    {kDlpackFloat8E4m3fn, 8, DType::kFloat8E4M3},
  };
  if (type.lanes == 1) {
    for (const Known& k : known) {
      if (k.code == type.code && k.bits == type.bits) return k.dtype;
    }
  }
  throw_error(ErrorCode::kUnsupported, tensor, " has DLPack type code ", int{type.code}, " with ",
              int{type.bits}, " bits and ", type.lanes,
              " lanes, supported: f32, f16, bf16, i32, i64, u8, bool, f8e4m3");
}

/// Host memory, pinned or not, is the CPU's; managed memory is its GPU's.
[[nodiscard]] inline Device device_of(const char* tensor, DLDevice device) {
  switch (device.device_type) {
    case kDLCPU:
    case kDLCUDAHost: return {DeviceType::kCpu, 0};
    case kDLCUDA:
    case kDLCUDAManaged: return {DeviceType::kCuda, device.device_id};
    default:
      throw_error(ErrorCode::kUnsupported, tensor, " is on DLPack device type ",
                  static_cast<int>(device.device_type), ", supported: CPU and CUDA");
  }
}

/// View of a tensor that somebody else owns: null strides mean without gaps, byte_offset is added.
/// Its first element must lie at a multiple of its size, unless the tensor is empty: f32 at address
/// 0x1002 is refused. Byte is `std::byte` or `const std::byte`; `tensor` names it in errors.
template <class Byte = std::byte>
[[nodiscard]] BasicTensorView<Byte> view(const char* tensor, const DLTensor& t) {
  HEDDLE_CHECK(t.ndim >= 0 && t.ndim <= kMaxRank, tensor, " has rank ", t.ndim, ", at most ",
               kMaxRank, " is supported");
  const DType dtype = dtype_of(tensor, t.dtype);
  const Device device = device_of(tensor, t.device);
  Byte* data = t.data == nullptr ? nullptr : static_cast<Byte*>(t.data) + t.byte_offset;
  HEDDLE_CHECK(t.ndim == 0 || t.shape != nullptr, tensor, ".shape is NULL, but it has rank ",
               t.ndim);
  const std::span<const int64_t> shape(t.shape, size_t(t.ndim));
  const auto past = reinterpret_cast<uintptr_t>(data) & (size_of(dtype) - 1);
  HEDDLE_CHECK(past == 0 || std::ranges::find(shape, 0) != shape.end(), tensor,
               " is not aligned to its elements of ", size_of(dtype),
               " bytes: data and byte_offset = ", t.byte_offset, " are ", past,
               " bytes past a multiple of that");
  if (t.strides == nullptr) return {data, dtype, device, shape};
  return {data, dtype, device, shape, std::span<const int64_t>(t.strides, size_t(t.ndim))};
}

}  // namespace heddle
