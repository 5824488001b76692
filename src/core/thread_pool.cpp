#include "heddle/core/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "heddle/core/error.h"

namespace heddle {
namespace {

// Long enough to bridge the serial code between two ops of a decode step (a few microseconds), short enough that an
// idle pool costs nothing.
constexpr std::chrono::microseconds kSpinTime{100};
constexpr int kSpinsPerClockRead = 64;

void pause_cpu() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Waits until `value` differs from `old`: spins, then sleeps.
uint32_t wait_for_change(const std::atomic<uint32_t>& value, uint32_t old) {
  const auto deadline = std::chrono::steady_clock::now() + kSpinTime;
  do {
    for (int i = 0; i < kSpinsPerClockRead; ++i) {
      const uint32_t now = value.load(std::memory_order_acquire);
      if (now != old) return now;
      pause_cpu();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  value.wait(old, std::memory_order_acquire);
  return value.load(std::memory_order_acquire);
}

}  // namespace

struct ThreadPool::State {
  alignas(64) std::atomic<uint32_t> job{0};      // number of the job that the workers should run
  alignas(64) std::atomic<int64_t> next{0};      // first index that nobody has taken
  alignas(64) std::atomic<uint32_t> running{0};  // workers that have not finished the job
  int64_t n = 0, grain = 1;
  const FunctionRef<void(int64_t, int64_t)>* body = nullptr;  // nullptr: the workers end
  std::vector<std::thread> workers;

  void run_chunks() {
    for (int64_t begin; (begin = next.fetch_add(grain, std::memory_order_relaxed)) < n;) {
      (*body)(begin, std::min(begin + grain, n));
    }
  }

  void work() {
    for (uint32_t seen = 0;;) {
      seen = wait_for_change(job, seen);
      const bool last = body == nullptr;
      if (!last) run_chunks();
      if (running.fetch_sub(1, std::memory_order_acq_rel) == 1) running.notify_one();
      if (last) return;
    }
  }

  void start(const FunctionRef<void(int64_t, int64_t)>* job_body) {
    body = job_body;
    next.store(0, std::memory_order_relaxed);
    running.store(static_cast<uint32_t>(workers.size()), std::memory_order_relaxed);
    job.fetch_add(1, std::memory_order_release);
    job.notify_all();
  }
};

ThreadPool::ThreadPool(int num_threads) : state_(std::make_unique<State>()) {
  HEDDLE_CHECK(num_threads >= 1, "a thread pool needs at least one thread, got ", num_threads);
  for (int i = 1; i < num_threads; ++i) {
    state_->workers.emplace_back([state = state_.get()] { state->work(); });
  }
}

ThreadPool::~ThreadPool() {
  state_->start(nullptr);
  for (std::thread& worker : state_->workers) worker.join();
}

int ThreadPool::num_threads() const { return static_cast<int>(state_->workers.size()) + 1; }

void ThreadPool::parallel_for(int64_t n, int64_t grain, FunctionRef<void(int64_t, int64_t)> body) {
  if (n <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  if (state_->workers.empty() || n <= grain) {
    for (int64_t begin = 0; begin < n; begin += grain) body(begin, std::min(begin + grain, n));
    return;
  }
  state_->n = n;
  state_->grain = grain;
  state_->start(&body);
  state_->run_chunks();
  for (uint32_t left; (left = state_->running.load(std::memory_order_acquire)) != 0;) {
    wait_for_change(state_->running, left);
  }
}

}  // namespace heddle
