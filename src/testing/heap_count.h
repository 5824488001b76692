#pragma once

#include <cstdint>

namespace heddle::testing {

/// How often operator new was called so far, in any thread. A program that asks has operators of
/// its own, which count: plain, array, nothrow and aligned ones.
[[nodiscard]] int64_t num_heap_allocations();
/// The bytes that it was asked for, with those that were given back since.
[[nodiscard]] int64_t num_heap_bytes();

/// While it lives, the n-th call of operator new from its making on fails, once: it throws
/// std::bad_alloc, or a nothrow form gives nullptr. n = 1 is the next call. `n` counts down as
/// memory is asked for, so that several scopes one after the other share one count; 0 and below:
/// no call fails (any more). One scope at a time.
class FailingAllocation {
 public:
  explicit FailingAllocation(int64_t& n);
  ~FailingAllocation();
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;

 private:
  int64_t& n_;
};

}  // namespace heddle::testing
