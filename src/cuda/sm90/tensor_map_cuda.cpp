#include "cuda/check.h"
#include "cuda/sm90/tensor_map.h"

#include "heddle/core/error.h"

#include "core/math.h"

namespace heddle::cuda {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

/// The driver's function, found through the runtime: nothing is linked with the driver.
Encode find_encode() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result{};
  constexpr unsigned kFirstVersion = 12000;
  HEDDLE_CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                     kFirstVersion, cudaEnableDefault, &result));
  if (result != cudaDriverEntryPointSuccess || function == nullptr) {
    throw_error(ErrorCode::kUnsupported, "the CUDA driver has no cuTensorMapEncodeTiled");
  }
  return reinterpret_cast<Encode>(function);
}

}  // namespace

CUtensorMap make_tensor_map(const ConstTensorView& matrix, int box_rows) {
  static const Encode encode = find_encode();
  constexpr cuuint32_t kBoxColumns = 64;
  const CUtensorMapDataType type = matrix.dtype() == DType::kFloat16
                                       ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                       : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  constexpr int64_t kAlignedElements = 8;
  // A single row may have any stride.
  const int64_t stride =
      matrix.size(0) > 1 ? matrix.stride(0) : round_up(matrix.size(1), kAlignedElements);
  const auto row_bytes =
      static_cast<cuuint64_t>(stride) * static_cast<cuuint64_t>(size_of(matrix.dtype()));
  const cuuint64_t extents[] = {static_cast<cuuint64_t>(matrix.size(1)),
                                static_cast<cuuint64_t>(matrix.size(0))};
  const cuuint64_t strides[] = {row_bytes};
  const cuuint32_t box[] = {kBoxColumns, static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t steps[] = {1, 1};
  CUtensorMap map;
  const CUresult result =
      encode(&map, type, 2, const_cast<std::byte*>(matrix.raw()), extents, strides, box, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    throw_error(ErrorCode::kCuda, "cuTensorMapEncodeTiled of [", matrix.size(0), ", ",
                matrix.size(1), "], rows ", row_bytes, " bytes apart: error ",
                static_cast<int>(result));
  }
  return map;
}

}  // namespace heddle::cuda
