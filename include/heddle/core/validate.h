#pragma once

#include <cstdlib>

namespace heddle {

/// Whether the environment holds HEDDLE_VALIDATE=1: ops then also check the metadata that lies on
/// the device (ids, page tables, lengths) and throw kInvalidArgument with row and value. Read at
/// every call. A call on CUDA then copies the metadata to the host and waits for its stream, unless
/// that is being captured: a captured call checks nothing.
[[nodiscard]] inline bool validating() {
  const char* value = std::getenv("HEDDLE_VALIDATE");
  return value != nullptr && value[0] == '1' && value[1] == '\0';
}

}  // namespace heddle
