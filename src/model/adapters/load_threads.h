#pragma once

#include <algorithm>
#include <cstddef>
#include <thread>

#include "heddle/core/thread_pool.h"

namespace heddle::model {

/// Threads for what a load does with so many bytes of values: several for a large adapter. They
/// have nothing to do with those of an engine's steps, which a load runs next to.
[[nodiscard]] inline ThreadPool load_threads(size_t num_bytes) {
  constexpr size_t kLarge = size_t{16} << 20;
  constexpr int kMostThreads = 12;
  const auto num_processors = static_cast<int>(std::thread::hardware_concurrency());
  return ThreadPool(num_bytes < kLarge ? 1 : std::clamp(num_processors, 1, kMostThreads));
}

}  // namespace heddle::model
