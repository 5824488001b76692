#pragma once

#include <cstddef>
#include <span>

#include "heddle/core/device.h"
#include "heddle/core/fault.h"
#include "heddle/core/thread_pool.h"
#include "heddle/core/workspace.h"

// As the CUDA runtime declares it; keeps its headers out of ours.
typedef struct CUstream_st* cudaStream_t;

namespace heddle {

/// Everything a call may use. Passed in, never global. A default-made context runs on the CPU in
/// the calling thread.
struct ExecContext {
  Device device{};
  DeviceInfo info{};
  cudaStream_t stream = nullptr;
  Workspace* workspace = nullptr;  // scratch of this stream, sized by *_workspace_bytes
  ThreadPool* threads = nullptr;   // CPU ops; nullptr: the calling thread alone
  /// CUDA: memory of the device, zero when made, in which blocks of a kernel, or of it and the
  /// next one, tell each other what is done. Of this stream alone, never written by others, kept as
  /// it is from call to call. Without it some ops take one launch more, or wait longer.
  std::span<std::byte> exchange{};
  /// CUDA: where kernels report wrong indices, see CudaContext::check(). Without it they read and
  /// write as little outside their arrays, but report nothing.
  FaultRecord* faults = nullptr;
};

/// The workspace of `ctx`; the error names the op that needs one.
[[nodiscard]] inline Workspace& require_workspace(const ExecContext& ctx, const char* op) {
  HEDDLE_CHECK(ctx.workspace != nullptr, op, ": the context has no workspace");
  return *ctx.workspace;
}

/// Threads that CPU ops of the context run on.
[[nodiscard]] inline int num_threads(const ExecContext& ctx) {
  return ctx.threads == nullptr ? 1 : ctx.threads->num_threads();
}

/// ThreadPool::parallel_for on the context's threads, or one call in this thread when it has none
/// or work is one chunk.
inline void parallel_for(const ExecContext& ctx, int64_t n, int64_t grain,
                         FunctionRef<void(int64_t, int64_t)> body) {
  if (n <= 0) return;
  if (ctx.threads == nullptr || n <= grain) {
    body(0, n);
  } else {
    ctx.threads->parallel_for(n, grain, body);
  }
}

}  // namespace heddle
