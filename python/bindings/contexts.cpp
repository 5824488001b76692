#include "contexts.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <pthread.h>
#include <sched.h>
#include <vector>

#include "heddle/core/error.h"

namespace heddle::python {

struct CpuContext {
  explicit CpuContext(int num_threads) : threads(num_threads) {}

  void reserve(size_t bytes) {
    if (bytes <= buffer.size()) return;
    buffer = std::vector<std::byte>(bytes);
    workspace = Workspace(buffer);
  }

  ThreadPool threads;
  std::vector<std::byte> buffer;
  Workspace workspace{buffer};
};

namespace {

/// The CPU contexts that nobody uses. Never destroyed: at the end of the process Python's daemon threads may still be in a
/// call. After a fork the child begins with none, since the threads of a pool stay in the parent.
struct FreeContexts {
  std::mutex mutex;
  std::vector<std::unique_ptr<CpuContext>> contexts;
};
FreeContexts* free_contexts = nullptr;
std::optional<int> chosen_threads;  // guarded by the mutex, as is the one below
int default_threads = 0;

int usable_processors() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

int threads_from_environment() {
  const char* text = std::getenv("HEDDLE_NUM_THREADS");
  if (text == nullptr || *text == '\0') return usable_processors();
  char* end = nullptr;
  const long n = std::strtol(text, &end, 10);
  HEDDLE_CHECK(*end == '\0' && n >= 1 && n <= 1024, "HEDDLE_NUM_THREADS is \"", text,
               "\", expected a number from 1 to 1024");
  return static_cast<int>(n);
}

FreeContexts& kept_contexts() {
  static const bool registered = [] {
    free_contexts = new FreeContexts();
    // Locked while forking, so that the child never sees the list half changed; it then leaves it behind.
    pthread_atfork([] { free_contexts->mutex.lock(); }, [] { free_contexts->mutex.unlock(); },
                   [] { free_contexts = new FreeContexts(); });
    return true;
  }();
  (void)registered;
  return *free_contexts;
}

int num_threads_locked() {
  if (chosen_threads) return *chosen_threads;
  if (default_threads == 0) default_threads = threads_from_environment();
  return default_threads;
}

std::unique_ptr<CpuContext> take_cpu_context() {
  FreeContexts& kept = kept_contexts();
  int threads = 0;
  {
    const std::lock_guard lock(kept.mutex);
    threads = num_threads_locked();
    while (!kept.contexts.empty()) {
      std::unique_ptr<CpuContext> context = std::move(kept.contexts.back());
      kept.contexts.pop_back();
      if (context->threads.num_threads() == threads) return context;
    }
  }
  return std::make_unique<CpuContext>(threads);
}

}  // namespace

ContextLease::ContextLease(Device device, void* stream, size_t workspace_bytes)
    : context_{.device = device, .stream = static_cast<cudaStream_t>(stream)} {
  // Without CUDA kernels an op refuses a context of another device itself, naming the op and the device.
  if (device.type != DeviceType::kCpu) return;
  cpu_ = take_cpu_context();
  cpu_->reserve(workspace_bytes);
  context_.workspace = &cpu_->workspace;
  context_.threads = &cpu_->threads;
}

ContextLease::~ContextLease() {
  if (cpu_ == nullptr) return;
  FreeContexts& kept = kept_contexts();
  const std::lock_guard lock(kept.mutex);
  kept.contexts.push_back(std::move(cpu_));
}

int num_threads() {
  const std::lock_guard lock(kept_contexts().mutex);
  return num_threads_locked();
}

void set_num_threads(int n) {
  HEDDLE_CHECK(n >= 1 && n <= 1024, "num_threads is ", n, ", expected 1 to 1024");
  const std::lock_guard lock(kept_contexts().mutex);
  chosen_threads = n;
}

}  // namespace heddle::python
