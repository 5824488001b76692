#include "heddle/core/thread_pool.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/core/context.h"

#include "exec_context.h"
#include "expect_error.h"
#include "random.h"

namespace heddle {
namespace {

using testing::message_of;

TEST(ThreadPool, RunsEveryIndexOnceForAnySizeAndGrain) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.num_threads(), threads);
    for (int round = 0; round < 200; ++round) {
      const int64_t n = testing::random_int(0, 300), grain = testing::random_int(1, 40);
      std::vector<std::atomic<int>> seen(static_cast<size_t>(n));
      pool.parallel_for(n, grain, [&](int64_t begin, int64_t end) {
        EXPECT_EQ(begin % grain, 0);
        EXPECT_LE(end, std::min(begin + grain, n));
        for (int64_t i = begin; i < end; ++i) seen[static_cast<size_t>(i)]++;
      });
      for (const auto& count : seen) ASSERT_EQ(count.load(), 1);
    }
  }
}

TEST(ThreadPool, ABodyMayWaitForTheChunksBelowItsOwn) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    std::atomic<int64_t> done{0};
    pool.parallel_for(500, 1, [&](int64_t begin, int64_t) {
      while (done != begin) std::this_thread::yield();
      ++done;
    });
    EXPECT_EQ(done, 500);
  }
}

TEST(ThreadPool, WorksAfterItsThreadsFellAsleep) {
  ThreadPool pool(3);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::atomic<int64_t> sum{0};
    pool.parallel_for(100, 1, [&](int64_t begin, int64_t) { sum += begin; });
    EXPECT_EQ(sum.load(), 4950);
  }
}

TEST(ThreadPool, HasOneTo2047Threads) {
  for (const int n : {0, -1, 2048, 1 << 30}) {
    EXPECT_EQ(message_of([&] { const ThreadPool pool(n); }),
              "a thread pool has 1 to 2047 threads, got " + std::to_string(n));
  }
}

/// Exits with 0 where the first pool is refused and a smaller one then works.
[[noreturn]] void make_more_threads_than_there_are() {
  testing::leave_room_for_threads(20);
  const std::string message = message_of([] { const ThreadPool pool(1024); });
  std::fprintf(stderr, "%s\n", message.c_str());
  ThreadPool pool(4);
  std::atomic<int> sum{0};
  pool.parallel_for(100, 1, [&](int64_t, int64_t) { ++sum; });
  std::_Exit(sum == 100 ? 0 : 1);
}

TEST(ThreadPool, ThreadsThatTheSystemDoesNotGiveAreAnErrorAndThoseBeforeEnd) {
  if (!testing::kCanLimitThreads) GTEST_SKIP() << "under the address sanitizer";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(make_more_threads_than_there_are(), ::testing::ExitedWithCode(0),
              "the system gives [0-9]+ of 1024 threads: ");
}

TEST(ParallelFor, WithoutThreadsIsOneCall) {
  int calls = 0;
  parallel_for(ExecContext{}, 10, 3, [&](int64_t begin, int64_t end) {
    ++calls;
    EXPECT_EQ(begin, 0);
    EXPECT_EQ(end, 10);
  });
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace heddle
