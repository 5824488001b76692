#pragma once

#include <array>
#include <string>

#include "model/config/decoder_config.h"
#include "model/config/weight_source.h"

namespace heddle::model {

/// What a format of model files calls the tensors of a decoder. Names of a layer stand behind
/// "<layer_prefix><number>."; those of a product are without ".weight" and ".bias".
struct TensorNames {
  std::string decoder_prefix;  // of folders: of all but the head
  std::string embedding, output, output_norm, layer_prefix;
  std::string rotation_factors, rotation_long_factors;  // empty: the format has no such tensor
  std::string attention_norm, attention_post_norm, mlp_norm, mlp_post_norm, q_norm, k_norm;
  std::array<std::string, kNumProjections> projections;
  std::string qkv, gate_up;
  std::string ignored_suffix;  // of tensors that hold what is computed here; empty: none
};

[[nodiscard]] TensorNames gguf_tensor_names(const DecoderConfig& config);
/// Those of transformers.
[[nodiscard]] TensorNames folder_tensor_names(const DecoderConfig& config);
/// Where a folder's tensors of the decoder lie: behind "model.", or in models that take more than
/// text behind "model.language_model." or "language_model.model.".
[[nodiscard]] TensorNames folder_tensor_names(const DecoderConfig& config,
                                              const WeightSource& weights);

}  // namespace heddle::model
