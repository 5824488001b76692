#include "heddle/engine/adapter_content.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "heddle/core/cuda_context.h"
#include "heddle/core/error.h"

#include "core/device_bytes.h"
#include "core/device_graph.h"
#include "core/throwing_parallel_for.h"
#include "files/json_text.h"
#include "files/json_value.h"
#include "model/adapters/load_threads.h"

namespace heddle {
namespace {

const char* safetensors_type(const AdapterTensor& tensor) {
  switch (tensor.values.dtype()) {
    case DType::kFloat32: return "F32";
    case DType::kFloat16: return "F16";
    case DType::kBFloat16: return "BF16";
    default:
      throw_error(ErrorCode::kUnsupported, "tensor \"", tensor.name, "\" is ",
                  tensor.values.dtype(), ", supported: f32, f16, bf16");
  }
}

size_t bytes_of(const ConstTensorView& tensor) {
  return static_cast<size_t>(tensor.num_elements()) * size_of(tensor.dtype());
}

bool has_gaps(const ConstTensorView& tensor) {
  int64_t stride = 1;
  for (int d = tensor.rank(); d-- > 0; stride *= tensor.size(d)) {
    if (tensor.size(d) != 1 && tensor.stride(d) != stride) return true;
  }
  return false;
}

/// The length of the header and the header.
std::string head_of(std::span<const AdapterTensor> tensors) {
  files::JsonObject header;
  size_t end = 0;
  for (const AdapterTensor& tensor : tensors) {
    HEDDLE_CHECK(!has_gaps(tensor.values), "tensor \"", tensor.name,
                 "\" is not row-major without gaps");
    HEDDLE_CHECK(!header.contains(tensor.name), "tensor \"", tensor.name, "\" is given twice");
    files::JsonArray shape;
    for (int d = 0; d < tensor.values.rank(); ++d) shape.emplace_back(tensor.values.size(d));
    const size_t begin = std::exchange(end, end + bytes_of(tensor.values));
    header[tensor.name] = {{"dtype", safetensors_type(tensor)},
                           {"shape", std::move(shape)},
                           {"data_offsets", files::JsonArray{begin, end}}};
  }
  const std::string text = files::json_text(header);
  std::string head(sizeof(uint64_t), '\0');
  const uint64_t size = text.size();
  std::memcpy(head.data(), &size, sizeof size);
  return head + text;
}

/// A copy of a tensor into the content.
struct Copy {
  const std::byte* from;
  std::span<std::byte> to;
};

size_t bytes_of(std::span<const Copy> copies) {
  size_t bytes = 0;
  for (const Copy& copy : copies) bytes += copy.to.size();
  return bytes;
}

void copy_values(const Copy& copy) {
  if (!copy.to.empty()) std::memcpy(copy.to.data(), copy.from, copy.to.size());
}

void copy_on_host(std::span<const Copy> copies) {
  model::parallel_load(bytes_of(copies), copies.size(), [&](size_t i) { copy_values(copies[i]); });
}

/// All at once to pinned memory, and from there by several threads, each part as soon as it is
/// there.
void copy_by_way_of(std::span<std::byte> pinned, const ExecContext& ctx,
                    std::span<const Copy> copies) {
  constexpr size_t kPartBytes = size_t{8} << 20;
  struct Arriving {
    Copy copy;
    size_t part;
  };
  std::vector<Arriving> all;
  std::vector<DeviceEvent> parts;
  size_t begun = 0;
  for (const Copy& copy : copies) {
    const std::span<std::byte> to = pinned.first(copy.to.size());
    pinned = pinned.subspan(to.size());
    begin_copy_to_host(ctx, to, copy.from);
    all.push_back({{to.data(), copy.to}, parts.size()});
    begun += to.size();
    if (begun < kPartBytes && all.size() < copies.size()) continue;
    parts.emplace_back(ctx.device).record(ctx);
    begun = 0;
  }
  ThreadPool threads = model::load_threads(bytes_of(copies));
  throwing_parallel_for({.threads = &threads}, std::ssize(all), 1, [&](int64_t i, int64_t) {
    const ScopedDevice on_device(ctx.device);
    const Arriving& arriving = all[static_cast<size_t>(i)];
    parts[arriving.part].wait();
    copy_values(arriving.copy);
  });
}

}  // namespace

struct ContentStaging::Memory {
  struct Content {
    size_t size = 0;
    std::shared_ptr<std::byte[]> bytes{};
  };

  std::mutex mutex;
  Device device;
  size_t size = 0;
  StagingBytes bytes;
  std::array<Content, 2> contents;  // the last one first
};

ContentStaging::ContentStaging() : memory_(std::make_unique<Memory>()) {}
ContentStaging::~ContentStaging() = default;

std::shared_ptr<std::byte[]> ContentStaging::take(size_t bytes) {
  const std::lock_guard lock(memory_->mutex);
  auto& contents = memory_->contents;
  const auto fits = [&](const Memory::Content& each) {
    return each.bytes.use_count() == 1 && each.size >= bytes && each.size / 2 <= bytes;
  };
  auto place = std::ranges::find_if(contents, fits);
  std::atomic_thread_fence(std::memory_order_acquire);  // after all reads by who had it
  if (place == contents.end()) {
    place = contents.end() - 1;
    *place = {};  // before more is allocated
    *place = {bytes, allocate_zeroed(Device{}, bytes, HostPages::kHuge)};
  }
  std::rotate(contents.begin(), place, place + 1);
  return contents.front().bytes;
}

void ContentStaging::use(Device device, size_t bytes,
                         FunctionRef<void(std::span<std::byte>)> body) {
  const std::lock_guard lock(memory_->mutex);
  if (memory_->size < bytes || memory_->device != device) {
    memory_->size = 0;
    memory_->bytes = {};  // before more is allocated
    memory_->bytes = StagingBytes(device, bytes);
    memory_->size = bytes, memory_->device = device;
  }
  body({memory_->bytes.get(), bytes});
}

AdapterContent content_of(const ExecContext& ctx, const std::string& name,
                          const std::string& config_json, std::span<const AdapterTensor> tensors,
                          ContentStaging* staging) {
  const std::string head = head_of(tensors);
  size_t num_bytes = head.size();
  for (const AdapterTensor& tensor : tensors) num_bytes += bytes_of(tensor.values);
  ContentStaging own;
  ContentStaging& memory = staging != nullptr ? *staging : own;
  const std::shared_ptr<std::byte[]> bytes = memory.take(num_bytes);
  std::memcpy(bytes.get(), head.data(), head.size());
  std::byte* next = bytes.get() + head.size();
  std::vector<Copy> of_host, of_device;
  for (const AdapterTensor& tensor : tensors) {
    const size_t size = bytes_of(tensor.values);
    const bool is_on_host = tensor.values.device().type == DeviceType::kCpu;
    (is_on_host ? of_host : of_device)
        .push_back({tensor.values.raw(), {std::exchange(next, next + size), size}});
  }
  copy_on_host(of_host);
  if (!of_device.empty()) {
    const ScopedDevice on_device(ctx.device);
    memory.use(ctx.device, bytes_of(of_device),
               [&](std::span<std::byte> pinned) { copy_by_way_of(pinned, ctx, of_device); });
  }
  return {.name = name,
          .config_json = config_json,
          .safetensors = {bytes.get(), num_bytes},
          .owner = bytes};
}

}  // namespace heddle
