#pragma once

#include <string>
#include <string_view>

#include "model/config/decoder_config.h"
#include "model/config/weight_source.h"

namespace heddle::model {

// Names in models that take more than text, as transformers has them.

/// What the names of a decoder begin with there, instead of "model.".
inline constexpr std::string_view kNestedDecoders[] = {"model.language_model.",
                                                       "language_model.model."};
inline constexpr std::string_view kNestedHead = "language_model.lm_head";
/// Modules of the image and audio parts, and of the projections from there to the text.
inline constexpr std::string_view kOtherHalves[] = {"visual.", "vision_tower.", "vision_model.",
                                                    "multi_modal_projector.", "audio_tower."};

/// What a format of model files calls the tensors of a decoder. Names of a layer follow
/// "<layer_prefix><number>.".
struct TensorNames {
  std::string decoder_prefix;  // of folders: of all but the head
  std::string embedding, output, output_norm, layer_prefix;
  std::string rotation_factors, rotation_long_factors;  // empty: the format has no such tensor
  std::string attention_norm, attention_post_norm, mlp_norm, mlp_post_norm, q_norm, k_norm;
  std::string_view LinearModule::*linear = &LinearModule::name;
  std::string ignored_suffix;  // of tensors that hold what is computed here; empty: none

  [[nodiscard]] std::string layer(int64_t index) const {
    return layer_prefix + std::to_string(index) + ".";
  }
  /// Without ".weight" and ".bias".
  [[nodiscard]] std::string of(int64_t layer_index, const LinearModule& module) const {
    return layer(layer_index) + std::string(module.*linear);
  }
};

[[nodiscard]] TensorNames gguf_tensor_names(const DecoderConfig& config);
/// Those of transformers.
[[nodiscard]] TensorNames folder_tensor_names(const DecoderConfig& config);
/// For a folder whose tensors of the decoder begin with "model.", or in models that take more than
/// text with "model.language_model." or "language_model.model.", and in what transformers saved of
/// a decoder alone with nothing.
[[nodiscard]] TensorNames folder_tensor_names(const DecoderConfig& config,
                                              const WeightSource& weights);

}  // namespace heddle::model
