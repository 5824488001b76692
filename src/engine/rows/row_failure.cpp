#include "engine/rows/row_failure.h"

#include <new>

namespace heddle {

const char* name(RequestError error) {
  switch (error) {
    case RequestError::kNone: return "none";
    case RequestError::kInvalidArgument: return "invalid_argument";
    case RequestError::kUnsupported: return "unsupported";
    case RequestError::kUnknownAdapter: return "unknown_adapter";
    case RequestError::kOutOfMemory: return "out_of_memory";
    case RequestError::kEngineEnded: return "engine_ended";
    case RequestError::kNotFinite: return "not_finite";
  }
  return "?";
}

RequestError request_error(const std::exception& thrown) noexcept {
  if (dynamic_cast<const std::bad_alloc*>(&thrown) != nullptr) return RequestError::kOutOfMemory;
  if (dynamic_cast<const UnknownAdapter*>(&thrown) != nullptr) return RequestError::kUnknownAdapter;
  if (dynamic_cast<const NotFinite*>(&thrown) != nullptr) return RequestError::kNotFinite;
  const auto* const error = dynamic_cast<const Error*>(&thrown);
  if (error == nullptr) return RequestError::kInvalidArgument;
  switch (error->code()) {
    case ErrorCode::kInvalidArgument: break;
    case ErrorCode::kUnsupported: return RequestError::kUnsupported;
    case ErrorCode::kOutOfMemory: return RequestError::kOutOfMemory;
    case ErrorCode::kCuda: return RequestError::kEngineEnded;
  }
  return RequestError::kInvalidArgument;
}

RowFailure failure_of(const std::exception& thrown) noexcept {
  const bool is_bad_alloc = dynamic_cast<const std::bad_alloc*>(&thrown) != nullptr;
  return {request_error(thrown),
          is_bad_alloc ? "out of memory: the row could not go on" : thrown.what()};
}

}  // namespace heddle
