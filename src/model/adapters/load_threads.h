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

/// body(begin, end) on parts of [0, num_values), which together have so many bytes. A small load
/// makes no threads, and so needs no memory.
inline void parallel_load(size_t num_bytes, int64_t num_values,
                          FunctionRef<void(int64_t, int64_t)> body) {
  if (num_bytes < kLargeLoad) return body(0, num_values);
  load_threads(num_bytes).parallel_for(num_values, 1, body);
}

}  // namespace heddle::model
