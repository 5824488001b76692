#pragma once

#include <cstdint>
#include <exception>
#include <mutex>

#include "heddle/core/context.h"

namespace heddle {

/// parallel_for of a body that may throw, as one that reads files does. All other chunks are still
/// done; then one of the exceptions is thrown.
template <class Body>
void throwing_parallel_for(const ExecContext& ctx, int64_t n, int64_t grain, const Body& body) {
  std::mutex mutex;
  std::exception_ptr failed;
  parallel_for(ctx, n, grain, [&](int64_t begin, int64_t end) {
    try {
      body(begin, end);
    } catch (...) {
      const std::scoped_lock lock(mutex);
      failed = std::current_exception();
    }
  });
  if (failed) std::rethrow_exception(failed);
}

}  // namespace heddle
