#include "model/config/decoder_config.h"

#include <cmath>

namespace heddle::model {

RopeParams Rotation::params_for(int64_t length) const {
  RopeParams result = params;
  if (ntk_factor > 0 && length > original_context) {
    const double dim = params.rotary_dim;
    const double stretch = static_cast<double>(length) / static_cast<double>(original_context);
    result.theta *= std::pow(ntk_factor * stretch - (ntk_factor - 1), dim / (dim - 2));
  }
  return result;
}

BlockShape DecoderConfig::block() const {
  const int64_t q = num_q_heads * head_dim, kv = num_kv_heads * head_dim;
  const auto slice = [](const char* module, int64_t in, int64_t out, bool rotates = false) {
    return BlockSlice{find_linear_module(module), {in, out}, rotates};
  };
  const LinearModule* const qkv = find_linear_module("self_attn.qkv_proj");
  const LinearModule* const gate_up = find_linear_module("mlp.gate_up_proj");
  return {.slices = {slice("self_attn.q_proj", hidden_size, q, true),
                     slice("self_attn.k_proj", hidden_size, kv, true),
                     slice("self_attn.v_proj", hidden_size, kv),
                     slice("self_attn.o_proj", q, hidden_size),
                     slice("mlp.gate_proj", hidden_size, intermediate_size),
                     slice("mlp.up_proj", hidden_size, intermediate_size),
                     slice("mlp.down_proj", intermediate_size, hidden_size)},
          .sites = {{qkv, 0, 3, SiteKind::kInner, qkv_bias, fused_qkv},
                    {nullptr, 3, 1, SiteKind::kResidual, o_bias},
                    {gate_up, 4, 2, SiteKind::kInner, mlp_bias, fused_gate_up},
                    {nullptr, 6, 1, SiteKind::kResidual, mlp_bias}},
          .mixer = AttentionSites{.qkv = 0, .o = 1},
          .mlp = GatedMlpSites{.gate_up = 2, .down = 3}};
}

// Row 2 j + i of a head in the file (j a frequency, i the first or second element of its pair) is
// row i * rotary_dim / 2 + j in Hugging Face's order; rows from rotary_dim on stay.
int64_t DecoderConfig::interleaved_row(int64_t row) const {
  const int64_t num_pairs = rotary_dim() / 2, d = row % head_dim;
  return d < rotary_dim() ? row - d + 2 * (d % num_pairs) + d / num_pairs : row;
}

int64_t DecoderConfig::recompute_above() const {
  for (const Rotation& rotation : rotations) {
    if (rotation.has_long_factors) return rotation.original_context;
  }
  return 0;
}

}  // namespace heddle::model
