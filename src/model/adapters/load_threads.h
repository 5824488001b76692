#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <thread>

#include "heddle/core/thread_pool.h"

namespace heddle::model {

inline constexpr size_t kLargeLoad = size_t{16} << 20;  // bytes, from which several threads pay

/// Threads for what a load does with so many bytes of values: several for a large adapter. They
/// have nothing to do with those of an engine's steps, which a load runs next to.
[[nodiscard]] inline ThreadPool load_threads(size_t num_bytes) {
  constexpr int kMostThreads = 12;
  const auto num_processors = static_cast<int>(std::thread::hardware_concurrency());
  return ThreadPool(num_bytes < kLargeLoad ? 1 : std::clamp(num_processors, 1, kMostThreads));
}

/// body(i) for each i below count, of things that together have so many bytes; it must not throw. A
/// small load makes no threads, and so needs no memory.
inline void parallel_load(size_t num_bytes, size_t count, FunctionRef<void(size_t)> body) {
  const auto run = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(static_cast<size_t>(i));
  };
  const auto n = static_cast<int64_t>(count);
  if (num_bytes < kLargeLoad) return run(0, n);
  load_threads(num_bytes).parallel_for(n, 1, run);
}

}  // namespace heddle::model
