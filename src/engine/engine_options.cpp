#include "engine/engine_options.h"

#include <algorithm>
#include <limits>
#include <thread>

#include "heddle/core/error.h"

#include "engine/adapters/adapter_folder.h"
#include "engine/available_memory.h"
#include "engine/weight_options.h"

namespace heddle {
namespace {

// Far above what any machine runs, low enough that sums and products of them fit.
constexpr int64_t kMaxBatch = 65536, kMaxPageSize = 65536, kMaxThreads = 2047;

void check_range(const char* option, int64_t value, int64_t low, int64_t high) {
  HEDDLE_CHECK(value >= low && value <= high, option, " is ", value, ", expected ", low, " to ",
               high);
}

}  // namespace

EngineOptions complete_options(EngineOptions options, const model::DecoderConfig& config) {
  check_range("max_batch", options.max_batch, 1, kMaxBatch);
  check_range("page_size", options.page_size, 1, kMaxPageSize);
  check_range("prefill_chunk", options.prefill_chunk, 1, std::numeric_limits<int>::max());
  check_range("num_threads", options.num_threads, 0, kMaxThreads);
  check_range("kv_memory", options.kv_memory, 0, std::numeric_limits<int64_t>::max());
  check_range("adapter_memory", options.adapter_memory, 0, std::numeric_limits<int64_t>::max());
  if (!options.adapter_dir.empty()) static_cast<void>(AdapterFolder(options.adapter_dir));
  HEDDLE_CHECK(options.max_context >= 0 && options.max_context <= config.context_length,
               "max_context is ", options.max_context, ", expected 0 to ", config.context_length,
               ", for which ", options.model_path, " was made");
  static_cast<void>(load_options_of(options));
  static_cast<void>(kv_type_of(options.kv_type));
  if (options.num_threads == 0) {
    const auto num_processors = int64_t{std::thread::hardware_concurrency()};
    options.num_threads = static_cast<int>(std::clamp<int64_t>(num_processors, 1, kMaxThreads));
  }
  if (options.max_context == 0) options.max_context = config.context_length;
  return options;
}

AdapterStore::Limits adapter_limits(const EngineOptions& options) {
  constexpr int64_t kShare = 4;  // of what is available
  int64_t bytes = options.adapter_memory;
  if (bytes == 0) {
    bytes = options.adapter_dir.empty() ? std::numeric_limits<int64_t>::max()
                                        : available_memory() / kShare;
  }
  return {.folder = options.adapter_dir, .memory_bytes = bytes};
}

ModelRunner::Limits limits_of(const EngineOptions& options) {
  return {.max_batch = options.max_batch,
          .num_threads = options.num_threads,
          .page_size = options.page_size,
          .prefill_chunk = options.prefill_chunk,
          .max_context = options.max_context,
          .kv_memory = options.kv_memory,
          .kv_dtype = kv_type_of(options.kv_type)};
}

}  // namespace heddle
