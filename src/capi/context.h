#pragma once

#include <memory>

#include "heddle/c_api.h"
#include "heddle/core/context.h"

/// The workspace and threads of one (device, stream), and the ExecContext that lends them to calls.
struct heddle_context {
  explicit heddle_context(const heddle_context_options& options);
  heddle_context(const heddle_context&) = delete;
  heddle_context& operator=(const heddle_context&) = delete;

  std::unique_ptr<std::byte[]> memory;
  heddle::Workspace workspace;
  heddle::ThreadPool threads;
  heddle::ExecContext exec;
};
