#pragma once

#include <memory>
#include <optional>

#include "heddle/c_api.h"
#include "heddle/core/context.h"
#include "heddle/core/cuda_context.h"

/// The workspace and threads of one (device, stream), and the ExecContext that lends them to calls.
struct heddle_context {
  explicit heddle_context(const heddle_context_options& options);
  heddle_context(const heddle_context&) = delete;
  heddle_context& operator=(const heddle_context&) = delete;

  [[nodiscard]] const heddle::ExecContext& exec() const { return cuda ? cuda->exec() : cpu->exec; }

  /// CudaContext::check() and poll(); on the CPU nothing.
  void check() {
    if (cuda) cuda->check();
  }
  [[nodiscard]] std::optional<heddle::Fault> poll() { return cuda ? cuda->poll() : std::nullopt; }

 private:
  struct Cpu {
    explicit Cpu(const heddle_context_options& options);

    std::unique_ptr<std::byte[]> memory;
    heddle::Workspace workspace;
    heddle::ThreadPool threads;
    heddle::ExecContext exec;
  };
  // One of the two.
  std::unique_ptr<Cpu> cpu;
  std::unique_ptr<heddle::CudaContext> cuda;
};
