#pragma once

#include <cstddef>
#include <span>

#include "heddle/core/context.h"

namespace heddle::testing {

struct LateCopy {
  void* to;
  const void* from;
  size_t bytes;
};

/// Enqueues a kernel that lets the next one on the stream start at once, and makes the copies, four
/// at most, when that one has had the time to do all that it does before it waits for this one.
void copy_late(std::span<const LateCopy> copies, cudaStream_t stream);

}  // namespace heddle::testing
