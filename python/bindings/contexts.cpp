#include "bindings/contexts.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <pthread.h>
#include <sched.h>
#include <utility>
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

/// What the calls on one stream of a GPU share. Kept to the end of the process, since captured
/// graphs use its memory.
struct GpuContext {
  GpuContext(Device device, void* stream, size_t workspace_bytes)
      : cuda(device, static_cast<cudaStream_t>(stream), workspace_bytes) {}

  std::mutex in_use;  // by a call, on the host
  CudaContext cuda;
};

namespace {

/// What a GPU context starts with: enough for the plan and the partial sums of nearly all calls. A
/// call that needs more makes it grow.
constexpr size_t kGpuWorkspaceBytes = size_t{16} << 20;

/// The CPU contexts that no call uses, and all those of GPUs. Never destroyed: at the end of the
/// process Python's daemon threads may still be in a call. After a fork the child begins with none,
/// since the threads of a pool stay in the parent.
struct KeptContexts {
  std::mutex mutex;
  std::vector<std::unique_ptr<CpuContext>> free;
  std::map<std::pair<int, void*>, std::unique_ptr<GpuContext>> gpu;  // by device and stream
};
KeptContexts* all_kept_contexts = nullptr;
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

KeptContexts& kept_contexts() {
  static const bool registered = [] {
    all_kept_contexts = new KeptContexts();
    // Locked while forking, so that the child never sees the list half changed; it then makes a new
    // one.
    pthread_atfork([] { all_kept_contexts->mutex.lock(); },
                   [] { all_kept_contexts->mutex.unlock(); },
                   [] { all_kept_contexts = new KeptContexts(); });
    return true;
  }();
  (void)registered;
  return *all_kept_contexts;
}

int num_threads_locked() {
  if (chosen_threads) return *chosen_threads;
  if (default_threads == 0) default_threads = threads_from_environment();
  return default_threads;
}

std::unique_ptr<CpuContext> take_cpu_context() {
  KeptContexts& kept = kept_contexts();
  int threads = 0;
  {
    const std::lock_guard lock(kept.mutex);
    threads = num_threads_locked();
    while (!kept.free.empty()) {
      std::unique_ptr<CpuContext> context = std::move(kept.free.back());
      kept.free.pop_back();
      if (context->threads.num_threads() == threads) return context;
    }
  }
  return std::make_unique<CpuContext>(threads);
}

/// The GPU context that a thread used last: the calls of a step run on one stream. It stays to the
/// end of the process; after a fork the child has other `kept` ones.
struct LastContext {
  const KeptContexts* kept = nullptr;
  int device = 0;
  void* stream = nullptr;
  GpuContext* context = nullptr;
};
thread_local LastContext last_context;

/// That which calls have made; null: none.
GpuContext* known_gpu_context(Device device, void* stream) {
  KeptContexts& kept = kept_contexts();
  const std::lock_guard lock(kept.mutex);
  const auto found = kept.gpu.find({device.index, stream});
  return device.type == DeviceType::kCpu || found == kept.gpu.end() ? nullptr : found->second.get();
}

GpuContext& gpu_context(Device device, void* stream) {
  KeptContexts& kept = kept_contexts();
  LastContext& last = last_context;
  if (last.kept == &kept && last.device == device.index && last.stream == stream) {
    return *last.context;
  }
  const std::lock_guard lock(kept.mutex);
  std::unique_ptr<GpuContext>& context = kept.gpu[{device.index, stream}];
  if (context == nullptr) {
    context = std::make_unique<GpuContext>(device, stream, kGpuWorkspaceBytes);
  }
  last = {&kept, device.index, stream, context.get()};
  return *context;
}

}  // namespace

ContextLease::ContextLease(Device device, void* stream, size_t workspace_bytes, Kernels kernels) {
  if (device.type == DeviceType::kCpu) {
    cpu_ = take_cpu_context();
    cpu_->reserve(workspace_bytes);
    context_ = {.workspace = &cpu_->workspace, .threads = &cpu_->threads};
  } else if (kernels == Kernels::kCpu) {
    context_ = {.device = device, .stream = static_cast<cudaStream_t>(stream)};
  } else {
    GpuContext& gpu = gpu_context(device, stream);
    gpu_in_use_ = std::unique_lock(gpu.in_use);
    if (workspace_bytes > gpu.cuda.workspace_bytes()) {
      // Old workspaces stay, so it at least doubles: all of them together are then at most twice
      // the last.
      gpu.cuda.reserve_workspace(std::max(workspace_bytes, 2 * gpu.cuda.workspace_bytes()));
    }
    on_device_.emplace(device);
    context_ = gpu.cuda.exec();
  }
}

ContextLease::~ContextLease() {
  if (cpu_ == nullptr) return;
  KeptContexts& kept = kept_contexts();
  const std::lock_guard lock(kept.mutex);
  kept.free.push_back(std::move(cpu_));
}

void check_faults(Device device, void* stream) {
  GpuContext* const gpu = known_gpu_context(device, stream);
  if (gpu == nullptr) return;
  const std::lock_guard in_use(gpu->in_use);
  gpu->cuda.check();
}

std::optional<Fault> poll_faults(Device device, void* stream) {
  GpuContext* const gpu = known_gpu_context(device, stream);
  if (gpu == nullptr) return std::nullopt;
  const std::lock_guard in_use(gpu->in_use);
  return gpu->cuda.poll();
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
