#pragma once

#include <algorithm>
#include <cstddef>
#include <ctime>
#include <string>

#include <gtest/gtest.h>

namespace heddle::testing {

/// Seconds of processor time that `call` takes in this thread, the least of three calls; what else
/// the machine does is not in it.
template <class Call>
double processor_seconds(const Call& call) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  double least = 1e9;
  for (int i = 0; i < 3; ++i) {
    const double start = now();
    call();
    least = std::min(least, now() - start);
  }
  return least;
}

/// Expects read(make(n)) to take time in proportion to n: eight times the size, at most 24 times
/// the time, where what takes the square takes 64 times. Choose n such that reading it takes a
/// millisecond or more; what is much shorter counts as one.
template <class Make, class Read>
void expect_linear(const std::string& what, size_t n, const Make& make, const Read& read) {
  const auto seconds = [&](size_t size) {
    const auto input = make(size);
    return processor_seconds([&] { read(input); });
  };
  const double small = std::max(seconds(n), 1e-3), large = seconds(8 * n);
  EXPECT_LT(large, 24 * small) << what << ": size " << n << " takes " << small << " s, size "
                               << 8 * n << ' ' << large << " s";
}

}  // namespace heddle::testing
