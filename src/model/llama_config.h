#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "heddle/ops/rope.h"

#include "files/gguf.h"
#include "model/adapters/projection.h"

namespace heddle::model {

/// The shape of a Llama model, as its file states it.
struct LlamaConfig {
  std::string name;
  int64_t num_layers = 0, hidden_size = 0, intermediate_size = 0;
  int64_t num_q_heads = 0, num_kv_heads = 0, head_dim = 0;
  int64_t vocab_size = 0, context_length = 0;
  float rms_epsilon = 1e-5f;
  RopeParams rope;

  [[nodiscard]] ModelDims dims() const;
};

/// Reads and checks the settings of a GGUF file of the `llama` architecture. Errors name file, key
/// and both values.
[[nodiscard]] LlamaConfig read_llama_config(const files::GgufFile& file);

}  // namespace heddle::model
