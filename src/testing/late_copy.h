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

/// Enqueues a kernel that lets the next one on the stream start at once, waits for long enough that this one has done all that it does
/// before it waits for its predecessor, and only then makes the copies, four at most.
void copy_late(std::span<const LateCopy> copies, cudaStream_t stream);

}  // namespace heddle::testing
