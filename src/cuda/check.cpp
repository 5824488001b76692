#include "cuda/check.h"

#include "heddle/core/error.h"

namespace heddle::cuda {

void throw_cuda_error(cudaError_t error, const char* expression) {
  cudaGetLastError();
  const ErrorCode code =
      error == cudaErrorMemoryAllocation ? ErrorCode::kOutOfMemory : ErrorCode::kCuda;
  throw_error(code, expression, ": ", cudaGetErrorName(error), " (", cudaGetErrorString(error),
              ")");
}

}  // namespace heddle::cuda
