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
          .projections = {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up",
                          "ffn_down"},
          .qkv = "attn_qkv",
          .gate_up = "ffn_up",
          .ignored_suffix = ""};
}

namespace {

TensorNames names_behind(const DecoderConfig& config, const std::string& prefix,
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
          .projections = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                          "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"},
          .qkv = "self_attn.qkv_proj",
          .gate_up = "mlp.gate_up_proj",
          .ignored_suffix = ".rotary_emb.inv_freq"};
}

}  // namespace

TensorNames folder_tensor_names(const DecoderConfig& config) {
  return names_behind(config, "model.", "lm_head.weight");
}

TensorNames folder_tensor_names(const DecoderConfig& config, const WeightSource& weights) {
  std::string prefix = "model.", head = "lm_head.weight";
  for (const char* other : {"model.language_model.", "language_model.model."}) {
    if (weights.contains(std::string(other) + "norm.weight")) prefix = other;
  }
  const char* const nested_head = "language_model.lm_head.weight";
  if (weights.contains(nested_head)) head = nested_head;
  return names_behind(config, prefix, head);
}

}  // namespace heddle::model
