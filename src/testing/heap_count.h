#pragma once

#include <cstdint>

namespace heddle::testing {

/// How often operator new was called so far, in any thread. A program that asks has operators of
/// its own, which count.
[[nodiscard]] int64_t num_heap_allocations();
/// The bytes that it was asked for, with those that were given back since.
[[nodiscard]] int64_t num_heap_bytes();

}  // namespace heddle::testing
