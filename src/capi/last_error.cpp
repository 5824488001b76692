#include "capi/last_error.h"

#include <cstdio>
#include <exception>
#include <new>

#include "heddle/core/error.h"

namespace heddle::capi {
namespace {

// A library's only thread-local. A plain array: keeping a message can neither throw nor run code
// when a thread ends.
thread_local char last_error[1024] = "";

void keep(const char* message) noexcept {
  std::snprintf(last_error, sizeof last_error, "%s", message);
}

heddle_status status_of(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kInvalidArgument: return HEDDLE_INVALID_ARGUMENT;
    case ErrorCode::kUnsupported: return HEDDLE_UNSUPPORTED;
    case ErrorCode::kOutOfMemory: return HEDDLE_OUT_OF_MEMORY;
    case ErrorCode::kCuda: return HEDDLE_CUDA_ERROR;
  }
  return HEDDLE_INTERNAL_ERROR;
}

}  // namespace

heddle_status report_current_exception() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    keep(error.what());
    return status_of(error.code());
  } catch (const std::bad_alloc&) {
    keep("out of memory");
    return HEDDLE_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    keep(error.what());
  } catch (...) {
    keep("an exception that is no std::exception");
  }
  return HEDDLE_INTERNAL_ERROR;
}

const char* last_message() noexcept { return last_error; }

}  // namespace heddle::capi
