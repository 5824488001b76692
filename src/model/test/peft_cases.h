#pragma once

#include <span>
#include <string>
#include <vector>

#include "expect_error.h"
#include "model/adapters/peft_adapter.h"
#include "model/test/llama_slices.h"
#include "safetensors_builder.h"

// A small adapter as PEFT saves it, to be spoiled by tests.

namespace heddle::model::peft_cases {

using testing::SafetensorsBuilder;

inline const std::string kConfig = R"({"peft_type": "LORA", "r": 2, "lora_alpha": 6,
  "target_modules": ["q_proj", "down_proj"], "rank_pattern": {"down_proj": 1}})";

/// A model of two layers whose slices all differ.
inline ModelDims small_dims() {
  ModelDims dims{.num_layers = 2, .block = DecoderConfig{}.block()};
  for (int p = 0; p < llama::kNumSlices; ++p) {
    dims.block.slices[size_t(p)].dims = {.in = 4 + p, .out = 20 + p};
  }
  return dims;
}

inline std::string tensor_name(int layer, const std::string& module, const std::string& half) {
  return "base_model.model.model.layers." + std::to_string(layer) + '.' + module + '.' + half +
         ".weight";
}

struct Tensor {
  std::string name, dtype = "F16";
  std::vector<int64_t> shape;
};
/// Adds both halves of a module.
inline void add_pair(std::vector<Tensor>& tensors, int layer, const std::string& module,
                     int64_t rank, int64_t in, int64_t out) {
  tensors.push_back({tensor_name(layer, module, "lora_A"), "F16", {rank, in}});
  tensors.push_back({tensor_name(layer, module, "lora_B"), "F16", {out, rank}});
}
/// The tensors of kConfig's adapter for small_dims, to be spoiled by a test.
inline std::vector<Tensor> whole_adapter() {
  std::vector<Tensor> tensors;
  for (const int layer : {0, 1}) {
    add_pair(tensors, layer, "self_attn.q_proj", 2, 4, 20);
    add_pair(tensors, layer, "mlp.down_proj", 1, 10, 26);
  }
  return tensors;
}

inline std::string file_of(const std::vector<Tensor>& tensors) {
  SafetensorsBuilder builder;
  char fill = 'a';
  for (const Tensor& tensor : tensors) {
    int64_t bytes = tensor.dtype == "F32" ? 4 : tensor.dtype == "U8" ? 1 : 2;
    for (const int64_t extent : tensor.shape) bytes *= extent;
    builder.tensor(tensor.name, tensor.dtype, tensor.shape,
                   std::string(static_cast<size_t>(bytes), fill++));
  }
  return builder.build();
}
inline std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

/// An adapter that lies in memory.
struct StoredAdapter {
  explicit StoredAdapter(const std::vector<Tensor>& tensors, const std::string& config = kConfig)
      : file(file_of(tensors)), adapter(config, bytes_of(file), "dir") {}

  std::string file;
  PeftAdapter adapter;
};

inline void expect_refused(ErrorCode code, std::initializer_list<const char*> parts,
                           const std::vector<Tensor>& tensors,
                           const std::string& config = kConfig) {
  testing::expect_error(code, parts,
                        [&] { StoredAdapter(tensors, config).adapter.check_fits(small_dims()); });
}
inline void expect_refused(std::initializer_list<const char*> parts,
                           const std::vector<Tensor>& tensors,
                           const std::string& config = kConfig) {
  expect_refused(ErrorCode::kInvalidArgument, parts, tensors, config);
}

inline const std::string kEmbedding = "base_model.model.model.embed_tokens.";
inline const std::string kHead = "base_model.model.lm_head.";

}  // namespace heddle::model::peft_cases
