#pragma once

#include <cuda_runtime_api.h>

namespace heddle::cuda {

/// Throws Error(kCuda), or kOutOfMemory where memory is what lacks: "cudaMalloc(&p, n):
/// cudaErrorInvalidValue (invalid argument)". The runtime's record of the error is cleared, so that
/// the next launch is not blamed for it.
[[noreturn]] void throw_cuda_error(cudaError_t error, const char* expression);

}  // namespace heddle::cuda

/// Throws heddle::Error unless the call of the CUDA runtime succeeds. After a launch:
/// HEDDLE_CUDA_CHECK(cudaGetLastError()).
#define HEDDLE_CUDA_CHECK(...)                                           \
  do {                                                                   \
    const cudaError_t heddle_cuda_error = (__VA_ARGS__);                 \
    if (heddle_cuda_error != cudaSuccess) [[unlikely]]                   \
      ::heddle::cuda::throw_cuda_error(heddle_cuda_error, #__VA_ARGS__); \
  } while (0)
