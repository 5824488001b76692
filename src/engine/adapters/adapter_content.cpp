#include "heddle/engine/adapter_content.h"

#include <cstring>
#include <memory>
#include <utility>

#include "heddle/core/cuda_context.h"
#include "heddle/core/error.h"

#include "core/device_bytes.h"
#include "files/json_text.h"
#include "files/json_value.h"

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

}  // namespace

AdapterContent content_of(const ExecContext& ctx, const std::string& name,
                          const std::string& config_json, std::span<const AdapterTensor> tensors) {
  const std::string head = head_of(tensors);
  size_t num_bytes = head.size();
  for (const AdapterTensor& tensor : tensors) num_bytes += bytes_of(tensor.values);
  const std::shared_ptr<std::byte[]> bytes(new std::byte[num_bytes]);  // not cleared first
  std::byte* next = bytes.get();
  const auto place = [&](size_t size) { return std::span(std::exchange(next, next + size), size); };
  std::memcpy(place(head.size()).data(), head.data(), head.size());
  const ScopedDevice on_device(ctx.device);
  for (const AdapterTensor& tensor : tensors) {
    const std::span<std::byte> to = place(bytes_of(tensor.values));
    if (to.empty()) continue;
    if (tensor.values.device().type == DeviceType::kCpu) {
      std::memcpy(to.data(), tensor.values.raw(), to.size());
    } else {
      copy_to_host(ctx, to, tensor.values.raw());
    }
  }
  return {.name = name,
          .config_json = config_json,
          .safetensors = {bytes.get(), num_bytes},
          .owner = bytes};
}

}  // namespace heddle
