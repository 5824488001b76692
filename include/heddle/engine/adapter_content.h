#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "heddle/core/context.h"
#include "heddle/core/tensor_view.h"

namespace heddle {

/// An adapter in memory, as PEFT saves it: the two files of its folder. Tokenizer and chat template
/// are the model's.
struct AdapterContent {
  std::string name;  // that errors begin with, in place of a folder's path
  /// adapter_config.json; empty: the text `adapter_config` of the safetensors' __metadata__.
  std::string config_json;
  std::span<const std::byte> safetensors;  // adapter_model.safetensors
  /// Of these bytes, which merges read, too: kept as long as the adapter, and as merges of it.
  std::shared_ptr<const void> owner{};
};

/// A tensor of an adapter where a program has it: f32, f16 or bf16, row-major without gaps, in host
/// memory or on a GPU.
struct AdapterTensor {
  std::string name;  // as PEFT writes it: "base_model.model.model.layers.0....lora_A.weight"
  ConstTensorView values;
};

/// Host memory that is kept for contents to come: pinned memory of the size of the largest one so
/// far, by way of which tensors of a GPU are copied, and the memory of the last two contents.
class ContentStaging {
 public:
  ContentStaging();
  ~ContentStaging();
  /// At least so many bytes for a content: those of one that is gone, or new ones.
  [[nodiscard]] std::shared_ptr<std::byte[]> take(size_t bytes);
  /// body(memory) with so many bytes; one caller after another.
  void use(Device device, size_t bytes, FunctionRef<void(std::span<std::byte>)> body);

 private:
  struct Memory;
  std::unique_ptr<Memory> memory_;
};

/// Tensors as the content of an adapter: copied to host memory once, those of a GPU, which is
/// ctx.device, in the order of ctx.stream. Done when it returns. Throws Error where one is of
/// another type, has gaps, or is given twice. Without `staging` the call allocates all its memory.
[[nodiscard]] AdapterContent content_of(const ExecContext& ctx, const std::string& name,
                                        const std::string& config_json,
                                        std::span<const AdapterTensor> tensors,
                                        ContentStaging* staging = nullptr);

}  // namespace heddle
