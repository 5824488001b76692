#include "heddle/core/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <system_error>
#include <thread>
#include <vector>

#include "heddle/core/error.h"

#include "core/pause_cpu.h"

namespace heddle {
namespace {

// Long enough to bridge the serial code between two ops of a decode step (a few microseconds),
// short enough that an idle pool costs nothing.
constexpr std::chrono::microseconds kSpinTime{100};
constexpr int kSpinsPerClockRead = 64;

/// Waits while done(value) is false: spins, then sleeps. Returns the value that ended it.
template <class Done>
uint32_t wait_until(const std::atomic<uint32_t>& value, Done done) {
  const auto deadline = std::chrono::steady_clock::now() + kSpinTime;
  do {
    for (int i = 0; i < kSpinsPerClockRead; ++i) {
      const uint32_t now = value.load(std::memory_order_acquire);
      if (done(now)) return now;
      pause_cpu();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  for (;;) {
    const uint32_t now = value.load(std::memory_order_acquire);
    if (done(now)) return now;
    value.wait(now, std::memory_order_acquire);
  }
}

// The gate of the pool: number of the job, whether it is closed, and how many workers are inside.
constexpr uint32_t kInside = (1u << 11) - 1;
constexpr uint32_t kClosed = 1u << 11;
constexpr uint32_t kJobStep = 1u << 12;  // wraps after 2^20 jobs, which does no harm
constexpr uint32_t job_of(uint32_t gate) { return gate / kJobStep; }

}  // namespace

/// Workers enter a job while it is open; the caller closes it when no chunk is left and waits for
/// those inside alone. So a worker whose processor does something else delays no other: the others
/// take its chunks.
struct ThreadPool::State {
  alignas(64) std::atomic<uint32_t> gate{kClosed};
  alignas(64) std::atomic<int64_t> next{0};  // first index that no thread has taken
  // Written between jobs, when no thread is inside.
  int64_t n = 0, grain = 1;
  const FunctionRef<void(int64_t, int64_t)>* body = nullptr;  // nullptr: the workers end
  std::vector<std::thread> workers;

  State() = default;
  /// Ends the workers that there are; a constructor that could not make all of them ends so, too.
  ~State() {
    open(nullptr);
    for (std::thread& worker : workers) worker.join();
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void run_chunks() {
    for (int64_t begin; (begin = next.fetch_add(grain, std::memory_order_relaxed)) < n;) {
      (*body)(begin, std::min(begin + grain, n));
    }
  }

  /// Whether this worker is inside the job of `value`; false when that is closed or over.
  bool enter(uint32_t value) {
    const uint32_t job = job_of(value);
    while ((value & kClosed) == 0 && job_of(value) == job) {
      if (gate.compare_exchange_weak(value, value + 1, std::memory_order_acquire)) return true;
    }
    return false;
  }

  void work() {
    for (uint32_t seen = 0;;) {
      const uint32_t value = wait_until(gate, [&](uint32_t v) { return job_of(v) != seen; });
      seen = job_of(value);
      if (!enter(value)) continue;
      const bool last = body == nullptr;
      if (!last) run_chunks();
      const uint32_t before = gate.fetch_sub(1, std::memory_order_acq_rel);
      if ((before & kClosed) != 0 && (before & kInside) == 1) gate.notify_all();
      if (last) return;
    }
  }

  void open(const FunctionRef<void(int64_t, int64_t)>* job_body) {
    body = job_body;
    next.store(0, std::memory_order_relaxed);
    const uint32_t job = job_of(gate.load(std::memory_order_relaxed)) + 1;
    gate.store(job * kJobStep, std::memory_order_release);
    gate.notify_all();
  }

  void close() {
    gate.fetch_or(kClosed, std::memory_order_acq_rel);
    wait_until(gate, [](uint32_t v) { return (v & kInside) == 0; });
  }
};

ThreadPool::ThreadPool(int num_threads) : state_(std::make_unique<State>()) {
  HEDDLE_CHECK(num_threads >= 1 && num_threads <= static_cast<int>(kInside),
               "a thread pool has 1 to ", kInside, " threads, got ", num_threads);
  state_->workers.reserve(static_cast<size_t>(num_threads - 1));
  try {
    for (int i = 1; i < num_threads; ++i) {
      state_->workers.emplace_back([state = state_.get()] { state->work(); });
    }
  } catch (const std::system_error& error) {
    throw_error(ErrorCode::kOutOfMemory, "the system gives ", this->num_threads(), " of ",
                num_threads, " threads: ", error.code().message());
  }
}

ThreadPool::~ThreadPool() = default;

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
  state_->open(&body);
  state_->run_chunks();
  state_->close();
}

}  // namespace heddle
