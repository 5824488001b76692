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

ModelDims DecoderConfig::dims() const {
  ModelDims dims;
  dims.num_layers = num_layers;
  dims[Projection::kQ] = {hidden_size, num_q_heads * head_dim};
  dims[Projection::kK] = dims[Projection::kV] = {hidden_size, num_kv_heads * head_dim};
  dims[Projection::kO] = {num_q_heads * head_dim, hidden_size};
  dims[Projection::kGate] = dims[Projection::kUp] = {hidden_size, intermediate_size};
  dims[Projection::kDown] = {intermediate_size, hidden_size};
  dims.fused_qkv = fused_qkv;
  dims.fused_gate_up = fused_gate_up;
  dims.hidden_size = hidden_size;
  dims.vocab_size = vocab_size;
  return dims;
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
