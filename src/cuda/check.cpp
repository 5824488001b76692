#include "cuda/check.h"

#include "heddle/core/error.h"

#include "core/environment.h"
#include "core/scoped_operation.h"

namespace heddle::cuda {
namespace {

/// Whether a kernel has failed while it ran, of which any later call tells.
bool is_of_kernel(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorIllegalInstruction:
    case cudaErrorInvalidPc:
    case cudaErrorHardwareStackError:
    case cudaErrorAssert:
    case cudaErrorLaunchTimeout:
    case cudaErrorLaunchFailure:
    case cudaErrorECCUncorrectable: return true;
    default: return false;
  }
}

}  // namespace

void throw_cuda_error(cudaError_t error, const char* expression) {
  cudaGetLastError();
  const ErrorCode code =
      error == cudaErrorMemoryAllocation ? ErrorCode::kOutOfMemory : ErrorCode::kCuda;
  // The error of a kernel that fails while it runs is returned by a later call of any operation.
  const char* const operation = ScopedOperation::current();
  const bool is_known = operation != nullptr && (!is_of_kernel(error) || launches_block());
  const char* const suffix =
      is_of_kernel(error) && !is_known
          ? "; an operation before this call has failed, CUDA_LAUNCH_BLOCKING=1 tells which"
          : "";
  throw_error(code, is_known ? operation : "", is_known ? ": " : "", expression, ": ",
              cudaGetErrorName(error), " (", cudaGetErrorString(error), ")", suffix);
}

}  // namespace heddle::cuda
