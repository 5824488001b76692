#pragma once

#include <array>
#include <vector>

#include "heddle/core/context.h"
#include "heddle/ops/linear.h"

#include "core/device_tensor.h"
#include "model/llama_config.h"

namespace heddle::model {

struct LlamaLayer {
  DeviceTensor attention_norm, mlp_norm;  // [hidden_size] f32
  std::array<PackedWeight, kNumProjections>
      projection;  // by Projection; rows in Hugging Face's order

  [[nodiscard]] const PackedWeight& operator[](Projection p) const {
    return projection[static_cast<size_t>(p)];
  }
  [[nodiscard]] PackedWeight& operator[](Projection p) {
    return projection[static_cast<size_t>(p)];
  }
};

/// The weights of a Llama model in memory of one device, packed for its product.
struct LlamaWeights {
  PackedWeight embedding;  // [vocab_size, hidden_size]
  PackedWeight output;     // [vocab_size, hidden_size]; the embedding itself where the file has no
                           // head of its own
  DeviceTensor output_norm;   // [hidden_size] f32
  DeviceTensor rope_factors;  // [rotary_dim / 2] f32: frequencies are divided by them; absent: none
  std::vector<LlamaLayer> layers;
  std::vector<DeviceBytes> buffers;  // what the packed weights point into
  size_t num_bytes = 0;              // of the buffers
};

/// Packs every weight of the file for the context's device, piece by piece: the file's pages are
/// given back as they are packed, so that the peak is little above the packed size. Rows of q and
/// k, which the file keeps permuted for interleaved rotation, come back into Hugging Face's order.
/// Errors name file, tensor and both values; a tensor that a Llama model has no place for is
/// refused.
[[nodiscard]] LlamaWeights load_llama_weights(const ExecContext& ctx, const files::GgufFile& file,
                                              const LlamaConfig& config);

}  // namespace heddle::model
