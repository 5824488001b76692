#include "capi/c_context.h"

#include <algorithm>
#include <cstdint>
#include <thread>

#include "heddle/dlpack.h"

#include "capi/guard.h"

namespace {

int team_of(int32_t num_threads) {
  constexpr int32_t kMaxThreads = 1024;
  HEDDLE_CHECK(num_threads >= 0 && num_threads <= kMaxThreads, "options.num_threads is ",
               num_threads, ", expected 0 to ", kMaxThreads);
  if (num_threads > 0) return num_threads;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

/// Without values: pages that are never touched cost nothing.
std::unique_ptr<std::byte[]> allocate(size_t workspace_bytes) {
  HEDDLE_CHECK(workspace_bytes <= size_t{PTRDIFF_MAX}, "options.workspace_bytes is ",
               workspace_bytes, ", expected at most ", PTRDIFF_MAX);
  return std::unique_ptr<std::byte[]>(new std::byte[workspace_bytes]);
}

}  // namespace

heddle_context::Cpu::Cpu(const heddle_context_options& options)
    : memory(allocate(options.workspace_bytes)),
      workspace({memory.get(), options.workspace_bytes}),
      threads(team_of(options.num_threads)),
      exec{.workspace = &workspace, .threads = &threads} {}

heddle_context::heddle_context(const heddle_context_options& options) {
  const heddle::Device device = heddle::device_of("options.device", options.device);
  if (device.type == heddle::DeviceType::kCpu) {
    cpu = std::make_unique<Cpu>(options);
  } else {
    cuda = std::make_unique<heddle::CudaContext>(device, static_cast<cudaStream_t>(options.stream),
                                                 options.workspace_bytes);
  }
}

void heddle_context_options_init(heddle_context_options* options) {
  *options = {.device = {kDLCPU, 0},
              .stream = nullptr,
              .workspace_bytes = size_t{64} << 20,
              .num_threads = 0};
}

heddle_status heddle_context_create(heddle_context** context,
                                    const heddle_context_options* options) {
  return heddle::capi::guard([&] {
    HEDDLE_CHECK(context != nullptr, "context is NULL");
    heddle_context_options defaults;
    heddle_context_options_init(&defaults);
    *context = new heddle_context(options != nullptr ? *options : defaults);
  });
}

heddle_status heddle_context_check(heddle_context* context) {
  return heddle::capi::guard([&] {
    HEDDLE_CHECK(context != nullptr, "context is NULL");
    context->check();
  });
}

heddle_status heddle_context_poll(heddle_context* context) {
  return heddle::capi::guard([&] {
    HEDDLE_CHECK(context != nullptr, "context is NULL");
    if (const auto fault = context->poll()) {
      throw_error(heddle::ErrorCode::kInvalidArgument, fault->text());
    }
  });
}

void heddle_context_destroy(heddle_context* context) { delete context; }
