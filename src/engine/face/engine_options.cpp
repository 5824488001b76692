#include "engine/face/engine_options.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>
#include <thread>

#include "heddle/core/error.h"

#include "engine/adapters/adapter_folder.h"
#include "engine/options/available_memory.h"
#include "engine/options/tenants.h"
#include "engine/options/weight_options.h"
#include "engine/rows/row_drafts.h"
#include "files/printable.h"

namespace heddle {
namespace {

// Far above what any machine runs, low enough that sums and products of them fit.
constexpr int64_t kMaxBatch = 65536, kMaxPageSize = 65536, kMaxThreads = 2047;
constexpr int kMaxChunkOnGpu = 65536;  // rows that linear_site takes there
constexpr int64_t kShare = 4;  // a quarter of what is available is the default of memory and disk
constexpr int kUsualChunk = 512, kUsualChunkOnGpu = 2048;

void check_range(const char* option, int64_t value, int64_t low, int64_t high) {
  HEDDLE_CHECK(value >= low && value <= high, option, " is ", value, ", expected ", low, " to ",
               high);
}

/// 0 for "cuda" and the number after "cuda:"; nothing where the name is neither.
std::optional<int> cuda_index(std::string_view name) {
  constexpr std::string_view kCuda = "cuda";
  if (name == kCuda) return 0;
  if (!name.starts_with("cuda:")) return std::nullopt;
  name.remove_prefix(kCuda.size() + 1);
  int index = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
  const bool is_number = error == std::errc() && end == name.data() + name.size() && index >= 0;
  return is_number ? std::optional(index) : std::nullopt;
}

/// Bytes that a folder, which may not exist yet, could take.
int64_t room_on_disk(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::path at = std::filesystem::absolute(folder, error);
  while (!std::filesystem::exists(at, error) && at.has_relative_path()) at = at.parent_path();
  const std::filesystem::space_info space = std::filesystem::space(at, error);
  int64_t bytes = error ? 0 : static_cast<int64_t>(space.available);
  for (const auto& file : std::filesystem::directory_iterator(folder, error)) {
    const uintmax_t size = file.file_size(error);
    if (!error) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

void complete_disk_memory(EngineOptions& options, Device device,
                          const model::DecoderConfig& config) {
  if (options.kv_cache_dir.empty()) {
    HEDDLE_CHECK(options.kv_disk_memory == 0, "kv_disk_memory is ", options.kv_disk_memory,
                 ", but there is no kv_cache_dir (--kv-cache-dir)");
    HEDDLE_CHECK(!options.kv_disk_salted,
                 "kv_disk_salted is set, but there is no kv_cache_dir (--kv-cache-dir)");
    return;
  }
  HEDDLE_CHECK(options.prefix_cache, "kv_cache_dir is ", files::quote(options.kv_cache_dir),
               ", but the prefix cache is turned off");
  HEDDLE_CHECK(device.type == DeviceType::kCpu || options.kv_host_memory != 0, "kv_cache_dir is ",
               files::quote(options.kv_cache_dir),
               ", but pages of a GPU go there through host memory, and kv_host_memory is 0");
  if (keys_depend_on_length(config)) {
    throw_error(ErrorCode::kUnsupported, "kv_cache_dir is ", files::quote(options.kv_cache_dir),
                ", but this model's keys depend on the length of a prompt, so none can be kept for "
                "others; leave it out");
  }
  if (options.kv_disk_memory > 0) return;
  options.kv_disk_memory = room_on_disk(options.kv_cache_dir) / kShare;
}

void complete_speculation(SpeculationOptions& options, const model::DecoderConfig& config) {
  constexpr int kUsualDrafts = 8, kUsualMinNgram = 2, kUsualMaxNgram = 4, kLongestNgram = 64;
  constexpr int64_t kUsualMemory = int64_t{64} << 20;
  if (options.method.empty()) options.method = "off";
  const std::optional<DraftMethod> method = draft_method_of(options.method);
  HEDDLE_CHECK(method.has_value(), "speculation is ", files::quote(options.method), ", expected ",
               kDraftMethods);
  const bool drafts_with_model = has_model(*method);
  const bool needs_model = drafts_with_model && *method != DraftMethod::kHeads;
  HEDDLE_CHECK(!needs_model || !options.draft_model.empty(), "speculation is ", options.method,
               ", but draft_model (--draft-model) is empty");
  HEDDLE_CHECK(drafts_with_model || options.draft_model.empty(), "draft_model is ",
               files::quote(options.draft_model), ", but speculation is ", options.method,
               "; it takes one with model, heads or eagle3");
  check_range("max_drafts", options.max_drafts, 0, kMaxRowDrafts);
  check_range("min_ngram", options.min_ngram, 0, kLongestNgram);
  check_range("max_ngram", options.max_ngram, 0, kLongestNgram);
  check_range("speculation memory", options.memory, 0, std::numeric_limits<int64_t>::max());
  if (options.max_drafts == 0) options.max_drafts = kUsualDrafts;
  if (options.min_ngram == 0) {
    options.min_ngram =
        options.max_ngram == 0 ? kUsualMinNgram : std::min(kUsualMinNgram, options.max_ngram);
  }
  if (options.max_ngram == 0) options.max_ngram = std::max(kUsualMaxNgram, options.min_ngram);
  HEDDLE_CHECK(options.min_ngram <= options.max_ngram, "min_ngram is ", options.min_ngram,
               ", expected at most max_ngram = ", options.max_ngram);
  const bool remembers = *method == DraftMethod::kSuffix;
  HEDDLE_CHECK(options.memory == 0 || remembers || *method == DraftMethod::kModel,
               "speculation memory (--draft-memory) is ", options.memory, ", but speculation is ",
               options.method, "; it takes some with suffix or model");
  if (options.memory == 0 && remembers) options.memory = kUsualMemory;
  if (options.method != "off" && keys_depend_on_length(config)) {
    throw_error(ErrorCode::kUnsupported, "speculation is ", options.method,
                ", but this model's rotation depends on the length of a sequence, so drafts would "
                "change its answers; leave it out");
  }
}

/// The first GPU that this build has kernels for, or else the CPU.
Device usual_device() {
  if (!has_cuda()) return {};
  Device device{DeviceType::kCuda, 0};
  while (query_device(device).compute_capability < kMinComputeCapability) ++device.index;
  return device;
}

}  // namespace

Device device_of(const EngineOptions& options) {
  if (options.device.empty()) return usual_device();
  if (options.device == "cpu") return {};
  const std::optional<int> index = cuda_index(options.device);
  HEDDLE_CHECK(index.has_value(), "device is ", files::quote(options.device),
               ", expected cpu, cuda or cuda:1");
  const Device device{DeviceType::kCuda, *index};
  const int capability = query_device(device).compute_capability;
  if (capability < kMinComputeCapability) {
    throw_error(ErrorCode::kUnsupported, "device ", device, " has compute capability ",
                capability / 10, ".", capability % 10, ", kernels need at least ",
                kMinComputeCapability / 10, ".", kMinComputeCapability % 10,
                "; device cpu (--device cpu) runs without one");
  }
  return device;
}

bool keys_depend_on_length(const model::DecoderConfig& config) {
  return std::ranges::any_of(config.rotations, &model::Rotation::depends_on_length);
}

EngineOptions complete_options(EngineOptions options, const model::DecoderConfig& config,
                               bool has_host_tier) {
  constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
  check_range("max_batch", options.max_batch, 1, kMaxBatch);
  check_range("page_size", options.page_size, 1, kMaxPageSize);
  check_range("prefill_chunk", options.prefill_chunk, 0, std::numeric_limits<int>::max());
  check_range("num_threads", options.num_threads, 0, kMaxThreads);
  check_range("kv_memory", options.kv_memory, 0, kAny);
  check_range("kv_host_memory", options.kv_host_memory, -1, kAny);
  check_range("kv_disk_memory", options.kv_disk_memory, 0, kAny);
  check_range("adapter_memory", options.adapter_memory, 0, kAny);
  check_range("adapter_host_memory", options.adapter_host_memory, 0, kAny);
  check_range("max_batch_adapters", options.max_batch_adapters, 0, kAny);
  check_range("max_batch_adapter_bytes", options.max_batch_adapter_bytes, 0, kAny);
  static_cast<void>(AdapterFolders({options.adapter_dir, options.fetched_adapter_dir}));
  HEDDLE_CHECK(options.max_context >= 0 && options.max_context <= config.context_length,
               "max_context is ", options.max_context, ", expected 0 to ", config.context_length,
               ", the context length of ", options.model_path);
  static_cast<void>(load_options_of(options));
  const Device device = device_of(options);
  HEDDLE_CHECK(device.type != DeviceType::kCpu || options.adapter_host_memory == 0,
               "adapter_host_memory is ", options.adapter_host_memory,
               ", but on the CPU all adapters are in host memory; bound them with adapter_memory");
  HEDDLE_CHECK(device.type != DeviceType::kCpu || has_host_tier || options.kv_host_memory <= 0,
               "kv_host_memory is ", options.kv_host_memory,
               ", but on the CPU the KV cache itself is in host memory; bound it with kv_memory");
  std::ostringstream name;
  name << device;
  options.device = name.str();
  const bool on_gpu = device.type != DeviceType::kCpu;
  if (options.prefill_chunk == 0) options.prefill_chunk = on_gpu ? kUsualChunkOnGpu : kUsualChunk;
  if (on_gpu) options.prefill_chunk = std::min(options.prefill_chunk, kMaxChunkOnGpu);
  if (options.kv_type.empty() && device.type == DeviceType::kCpu) {
    options.kv_type = heddle::name(DType::kFloat32);
  }
  if (!options.kv_type.empty()) static_cast<void>(kv_type_of(options.kv_type));
  HEDDLE_CHECK(!on_gpu || options.activations.empty(), "activations is ",
               files::quote(options.activations),
               ", but a GPU has no such choice; device cpu "
               "(--device cpu) does");
  if (options.activations.empty() && !on_gpu) options.activations = "f32";
  if (options.num_threads == 0) {
    const auto num_processors = int64_t{std::thread::hardware_concurrency()};
    options.num_threads = static_cast<int>(std::clamp<int64_t>(num_processors, 1, kMaxThreads));
  }
  if (options.max_context == 0) options.max_context = config.context_length;
  complete_disk_memory(options, device, config);
  if (options.admit.empty()) options.admit = "now";
  HEDDLE_CHECK(options.admit == "now" || options.admit == "longest", "admit is ",
               files::quote(options.admit), ", expected now or longest");
  if (keys_depend_on_length(config)) options.admit = "longest";
  static_cast<void>(fairness_of(options.fairness));
  if (options.fairness.empty()) options.fairness = "off";
  complete_speculation(options.speculation, config);
  return options;
}

bool finds_adapters(const EngineOptions& options) {
  return !options.adapter_dir.empty() || !options.fetched_adapter_dir.empty();
}

AdapterStore::Limits adapter_limits(const EngineOptions& options) {
  constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
  int64_t bytes = options.adapter_memory, evictable_bytes = kAny;
  if (bytes == 0) {
    const int64_t share = available_memory(device_of(options)) / kShare;
    bytes = finds_adapters(options) ? share : kAny;
    evictable_bytes = share;
  }
  int64_t host_bytes = 0;
  if (finds_adapters(options) && device_of(options).type != DeviceType::kCpu) {
    host_bytes =
        options.adapter_host_memory > 0 ? options.adapter_host_memory : available_memory() / kShare;
  }
  AdapterBounds bounds{.memory_bytes = bytes};
  if (options.max_batch_adapters > 0) bounds.step_adapters = options.max_batch_adapters;
  if (options.max_batch_adapter_bytes > 0) bounds.step_bytes = options.max_batch_adapter_bytes;
  return {.folders = {options.adapter_dir, options.fetched_adapter_dir},
          .bounds = bounds,
          .host_memory = host_bytes,
          .evictable_memory = evictable_bytes,
          .strict = options.strict,
          .on_warning = options.on_warning,
          .on_receipt = options.on_receipt};
}

ModelRunner::Limits limits_of(const EngineOptions& options, bool steps_as_on_gpu) {
  return {.max_batch = options.max_batch,
          .num_threads = options.num_threads,
          .page_size = options.page_size,
          .prefill_chunk = options.prefill_chunk,
          .max_context = options.max_context,
          .kv_memory = options.kv_memory,
          .kv_dtype =
              options.kv_type.empty() ? std::nullopt : std::optional(kv_type_of(options.kv_type)),
          .max_drafts = options.speculation.method == "off" ? 0 : kMaxStepDrafts,
          .steps_as_on_gpu = steps_as_on_gpu};
}

}  // namespace heddle
