#include "model/config/tensor_names.h"

namespace heddle::model {

TensorNames gguf_tensor_names(const DecoderConfig& config) {
  const bool has_long_factors = config.rotations.front().has_long_factors;
  return {.decoder_prefix = "",
          .embedding = "token_embd.weight",
          .output = "output.weight",
          .output_norm = "output_norm.weight",
          .layer_prefix = "blk.",
          .rotation_factors = has_long_factors ? "rope_factors_short.weight" : "rope_freqs.weight",
          .rotation_long_factors = "rope_factors_long.weight",
          .attention_norm = "attn_norm.weight",
          .attention_post_norm = "post_attention_norm.weight",
          .mlp_norm = "ffn_norm.weight",
          .mlp_post_norm = "post_ffw_norm.weight",
          .q_norm = "attn_q_norm.weight",
          .k_norm = "attn_k_norm.weight",
          .linear = &LinearModule::gguf,
          .ignored_suffix = ""};
}

namespace {

TensorNames names_after(const DecoderConfig& config, const std::string& prefix,
                        const std::string& head) {
  // post_attention_layernorm is the norm after attention where a family has one there, and else the
  // norm before the MLP, which follows attention.
  const std::string post_attention = "post_attention_layernorm.weight";
  return {.decoder_prefix = prefix,
          .embedding = prefix + "embed_tokens.weight",
          .output = head,
          .output_norm = prefix + "norm.weight",
          .layer_prefix = prefix + "layers.",
          .rotation_factors = "",
          .rotation_long_factors = "",
          .attention_norm = "input_layernorm.weight",
          .attention_post_norm = post_attention,
          .mlp_norm = config.norm_after ? "pre_feedforward_layernorm.weight" : post_attention,
          .mlp_post_norm = "post_feedforward_layernorm.weight",
          .q_norm = "self_attn.q_norm.weight",
          .k_norm = "self_attn.k_norm.weight",
          .linear = &LinearModule::name,
          .ignored_suffix = ".rotary_emb.inv_freq"};
}

}  // namespace

TensorNames folder_tensor_names(const DecoderConfig& config) {
  return names_after(config, "model.", "lm_head.weight");
}

TensorNames folder_tensor_names(const DecoderConfig& config, const WeightSource& weights) {
  std::string prefix = "model.", head = "lm_head.weight";
  for (const std::string_view other : kNestedDecoders) {
    if (weights.contains(std::string(other) + "norm.weight")) prefix = other;
  }
  if (weights.contains("norm.weight")) prefix = "";
  const std::string nested_head = std::string(kNestedHead) + ".weight";
  if (weights.contains(nested_head)) head = nested_head;
  return names_after(config, prefix, head);
}

}  // namespace heddle::model
