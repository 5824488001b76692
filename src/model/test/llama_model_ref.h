#pragma once

#include <cmath>
#include <vector>

#include "heddle/core/dtype.h"

#include "model/config/decoder_config.h"
#include "model/test/llama_slices.h"

namespace heddle::model::ref {

using Values = std::vector<double>;

/// A decoder in double, weights [out, in] in Hugging Face's order, adapters already added to the
/// weights. What the configuration leaves out is not read.
struct Layer {
  Values attention_norm, attention_post_norm, mlp_norm, mlp_post_norm, q_norm, k_norm;
  Values projection[llama::kNumSlices];
  Values bias[llama::kNumSlices];  // added to the product; empty: none
};
struct Llama {
  DecoderConfig config;
  Values embedding, output_norm;
  Values output;        // empty: the embedding
  Values output_bias;   // empty: none
  Values rope_factors;  // frequency d is divided by factor d; empty: by 1
  std::vector<Layer> layers;
  DType kv_dtype = DType::kFloat32;  // f16, bf16, f8e4m3: keys and values are rounded to it
};

/// Each part of as many elements as the weight has.
inline Values normed(const DecoderConfig& c, const Values& x, const Values& weight) {
  Values y(x.size());
  for (size_t at = 0; at < x.size(); at += weight.size()) {
    double sum = 0;
    for (size_t i = 0; i < weight.size(); ++i) sum += x[at + i] * x[at + i];
    const double length =
        std::sqrt(sum / static_cast<double>(weight.size()) + double{c.rms_epsilon});
    for (size_t i = 0; i < weight.size(); ++i) {
      y[at + i] = x[at + i] / length * (weight[i] + (c.norm_adds_one ? 1 : 0));
    }
  }
  return y;
}

inline Values matvec(const Values& w, const Values& x) {
  Values y(w.size() / x.size(), 0.0);
  for (size_t o = 0; o < y.size(); ++o) {
    for (size_t k = 0; k < x.size(); ++k) y[o] += w[o * x.size() + k] * x[k];
  }
  return y;
}

/// Turns pair d, of elements d and d + rotary_dim / 2, by position / scale * theta^(-2 d /
/// rotary_dim) / factor d. rope.llama3 is not used: a file says it by factors.
inline void rotate(Values& heads, int64_t head_dim, const RopeParams& rope, const Values& factors,
                   int64_t position) {
  const auto half = static_cast<size_t>(rope.rotary_dim / 2);
  for (size_t h = 0; h < heads.size(); h += static_cast<size_t>(head_dim)) {
    for (size_t d = 0; d < half; ++d) {
      const double frequency =
          std::pow(rope.theta, -2.0 * static_cast<double>(d) / rope.rotary_dim) /
          (factors.empty() ? 1.0 : factors[d]);
      const double angle = static_cast<double>(position) / rope.scale * frequency;
      const double a = heads[h + d], b = heads[h + d + half];
      heads[h + d] = a * std::cos(angle) - b * std::sin(angle);
      heads[h + d + half] = b * std::cos(angle) + a * std::sin(angle);
    }
  }
}

/// As a cache of f8e4m3 holds it: codes times the scale of a head.
inline void quantise_head(double* head, int64_t head_dim) {
  float scale = 0;
  for (int64_t d = 0; d < head_dim; ++d) {
    scale = std::max(scale, std::abs(static_cast<float>(head[d])) / 448.0f);
  }
  for (int64_t d = 0; d < head_dim && scale > 0; ++d) {
    const auto code = from_float<float8_e4m3>(static_cast<float>(head[d]) / scale);
    head[d] = double{scale} * double{to_float(code)};
  }
}

/// As a cache of this type holds them; f32 stands for what is not rounded.
inline Values rounded(Values values, DType dtype, int64_t head_dim) {
  if (dtype == DType::kFloat8E4M3) {
    for (size_t h = 0; h < values.size(); h += size_t(head_dim)) {
      quantise_head(&values[h], head_dim);
    }
  }
  for (double& value : values) {
    const auto x = static_cast<float>(value);
    if (dtype == DType::kFloat16) value = double{to_float(from_float<half>(x))};
    if (dtype == DType::kBFloat16) value = double{to_float(from_float<bfloat16>(x))};
  }
  return values;
}

inline double capped(double x, double cap) { return cap == 0 ? x : cap * std::tanh(x / cap); }

/// Attention of the last position over the positions up to it that the layer's window shows.
inline Values attend(const DecoderConfig& c, size_t layer, const Values& q,
                     const std::vector<Values>& k, const std::vector<Values>& v) {
  const auto dim = static_cast<size_t>(c.head_dim);
  const auto group = static_cast<size_t>(c.num_q_heads / c.num_kv_heads);
  const int64_t window = c.layer(static_cast<int64_t>(layer)).window;
  const size_t first = window > 0 && std::ssize(k) > window ? k.size() - size_t(window) : 0;
  const double scale =
      c.attention_scale ? double{*c.attention_scale} : 1 / std::sqrt(static_cast<double>(dim));
  Values o(q.size(), 0.0);
  for (size_t h = 0; h < q.size() / dim; ++h) {
    const size_t kv = h / group * dim;
    Values p(k.size(), 0.0);
    double total = 0;
    for (size_t j = first; j < k.size(); ++j) {
      for (size_t d = 0; d < dim; ++d) p[j] += q[h * dim + d] * k[j][kv + d];
      p[j] = std::exp(capped(p[j] * scale, double{c.attention_soft_cap}));
      total += p[j];
    }
    for (size_t j = first; j < v.size(); ++j) {
      for (size_t d = 0; d < dim; ++d) o[h * dim + d] += p[j] / total * v[j][kv + d];
    }
  }
  return o;
}

inline double gate_of(GateActivation activation, double x) {
  constexpr double kRoot2OverPi = 0.7978845608028654;  // sqrt(2 / pi)
  switch (activation) {
    case GateActivation::kSilu: return x / (1 + std::exp(-x));
    case GateActivation::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(kRoot2OverPi * (x + 0.044715 * x * x * x)));
    case GateActivation::kGeluErf: return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
  }
  return NAN;
}

/// The residual after all layers, of each token: token t is computed with the weights of models[t],
/// which are of one shape, over the keys and values of those before it.
inline std::vector<Values> hidden_states(const std::vector<const Llama*>& models,
                                         const std::vector<int32_t>& tokens) {
  const DecoderConfig& c = models.front()->config;
  const auto hidden = static_cast<size_t>(c.hidden_size);
  const size_t num_layers = models.front()->layers.size();
  std::vector<std::vector<Values>> keys(num_layers), values(num_layers);
  std::vector<Values> states;
  for (size_t t = 0; t < tokens.size(); ++t) {
    const Llama& m = *models[t];
    Values x(hidden);
    for (size_t i = 0; i < hidden; ++i) {
      x[i] = m.embedding[static_cast<size_t>(tokens[t]) * hidden + i] * double{c.embedding_scale};
    }
    const auto add = [&](Values delta, const Values& post_norm) {
      if (c.norm_after) delta = normed(c, delta, post_norm);
      for (size_t i = 0; i < hidden; ++i) x[i] += double{c.residual_scale} * delta[i];
    };
    for (size_t l = 0; l < num_layers; ++l) {
      const Layer& layer = m.layers[l];
      const auto project = [&](int slice, const Values& in) {
        Values y = matvec(layer.projection[slice], in);
        for (size_t i = 0; i < layer.bias[slice].size(); ++i) y[i] += layer.bias[slice][i];
        return y;
      };
      const Values in = c.norm_before ? normed(c, x, layer.attention_norm) : x;
      Values q = project(llama::kQ, in), k = project(llama::kK, in);
      if (c.qk_norm != QkNorm::kNone) {
        q = normed(c, q, layer.q_norm);
        k = normed(c, k, layer.k_norm);
      }
      const int rotation = c.layer(static_cast<int64_t>(l)).rotation;
      for (Values* heads : {&q, &k}) {
        if (rotation == LayerTraits::kNoRotation) continue;
        rotate(*heads, c.head_dim, c.rotations[static_cast<size_t>(rotation)].params,
               m.rope_factors, static_cast<int64_t>(t));
      }
      keys[l].push_back(rounded(k, m.kv_dtype, c.head_dim));
      values[l].push_back(rounded(project(llama::kV, in), m.kv_dtype, c.head_dim));
      add(project(llama::kO, attend(c, l, q, keys[l], values[l])), layer.attention_post_norm);
      const Values mlp_in = c.norm_before ? normed(c, x, layer.mlp_norm) : x;
      Values gate = project(llama::kGate, mlp_in);
      const Values up = project(llama::kUp, mlp_in);
      for (size_t i = 0; i < gate.size(); ++i) {
        gate[i] = gate_of(c.gate_activation, gate[i]) * up[i];
      }
      add(project(llama::kDown, gate), layer.mlp_post_norm);
    }
    states.push_back(std::move(x));
  }
  return states;
}

inline std::vector<Values> hidden_states(const Llama& m, const std::vector<int32_t>& tokens) {
  return hidden_states(std::vector(tokens.size(), &m), tokens);
}

inline Values logits_of(const Llama& m, const Values& state) {
  const DecoderConfig& c = m.config;
  Values y = matvec(m.output.empty() ? m.embedding : m.output, normed(c, state, m.output_norm));
  for (size_t i = 0; i < m.output_bias.size(); ++i) y[i] += m.output_bias[i];
  for (double& v : y) v = capped(v * double{c.logits_scale}, double{c.logits_soft_cap});
  return y;
}

/// The logits after the last of the tokens.
inline Values logits(const Llama& m, const std::vector<int32_t>& tokens) {
  return logits_of(m, hidden_states(m, tokens).back());
}

}  // namespace heddle::model::ref
