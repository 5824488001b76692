#pragma once

#include <algorithm>
#include <cstddef>
#include <ctime>
#include <string>

#include <gtest/gtest.h>

#include "small_sizes.h"

namespace heddle::testing {

/// Seconds of processor time that this thread has taken; what else the machine does is not in it.
inline double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Those that `call` takes, the least of three calls.
template <class Call>
double processor_seconds(const Call& call) {
  double least = 1e9;
  for (int i = 0; i < small_or(1, 3); ++i) {
    const double start = thread_seconds();
    call();
    least = std::min(least, thread_seconds() - start);
  }
  return least;
}

/// Expects read(make(n)) to take time in proportion to n: for 16 times the size at most 100 times
/// the time, where what takes the square takes 256 times. The room is for caches, which the small
/// size may fit and the large one not. What takes less than two milliseconds counts as two. Where
/// sizes are small it reads a size once and measures nothing: instrumented code tells no times.
template <class Make, class Read>
void expect_linear(const std::string& what, size_t n, const Make& make, const Read& read) {
  if (small_sizes()) {
    read(make(n));
    return;
  }
  const auto seconds = [&](size_t size) {
    const auto input = make(size);
    return processor_seconds([&] { read(input); });
  };
  const double small = std::max(seconds(n), 2e-3), large = seconds(16 * n);
  EXPECT_LT(large, 100 * small) << what << ": size " << n << " takes " << small << " s, size "
                                << 16 * n << ' ' << large << " s";
}

}  // namespace heddle::testing
