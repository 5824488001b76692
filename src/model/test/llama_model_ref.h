#pragma once

#include <cmath>
#include <vector>

#include "heddle/core/dtype.h"

#include "model/adapters/projection.h"
#include "model/config/decoder_config.h"

namespace heddle::model::ref {

/// A Llama model in double, weights [out, in] in Hugging Face's order, adapters already added to
/// the weights.
struct Layer {
  std::vector<double> attention_norm, mlp_norm;
  std::vector<double> projection[kNumProjections];
  std::vector<double> bias[kNumProjections];  // added to the product; empty: none
};
struct Llama {
  DecoderConfig config;
  std::vector<double> embedding, output_norm;
  std::vector<double> output;        // empty: the embedding
  std::vector<double> output_bias;   // empty: none
  std::vector<double> rope_factors;  // frequency d is divided by factor d; empty: by 1
  std::vector<Layer> layers;
  DType kv_dtype = DType::kFloat32;  // f16, bf16: keys and values are rounded to it
};

inline std::vector<double> rms_norm(const std::vector<double>& x, const std::vector<double>& weight,
                                    double epsilon) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  std::vector<double> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    y[i] = x[i] / std::sqrt(sum / static_cast<double>(x.size()) + epsilon) * weight[i];
  }
  return y;
}

inline std::vector<double> matvec(const std::vector<double>& w, const std::vector<double>& x) {
  std::vector<double> y(w.size() / x.size(), 0.0);
  for (size_t o = 0; o < y.size(); ++o) {
    for (size_t k = 0; k < x.size(); ++k) y[o] += w[o * x.size() + k] * x[k];
  }
  return y;
}

/// Turns pair d, of elements d and d + rotary_dim / 2, by position / scale * theta^(-2 d /
/// rotary_dim) / factor d. rope.llama3 is not used: a file says it by factors.
inline void rotate(std::vector<double>& heads, int64_t head_dim, const RopeParams& rope,
                   const std::vector<double>& factors, int64_t position) {
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

/// As a cache of this type holds them; f32 stands for what is not rounded.
inline std::vector<double> rounded(std::vector<double> values, DType dtype) {
  for (double& value : values) {
    const auto x = static_cast<float>(value);
    if (dtype == DType::kFloat16) value = double{to_float(from_float<half>(x))};
    if (dtype == DType::kBFloat16) value = double{to_float(from_float<bfloat16>(x))};
  }
  return values;
}

/// Attention of the last position over all positions up to it.
inline std::vector<double> attend(const std::vector<double>& q,
                                  const std::vector<std::vector<double>>& k,
                                  const std::vector<std::vector<double>>& v,
                                  const DecoderConfig& config) {
  const auto dim = static_cast<size_t>(config.head_dim);
  const auto group = static_cast<size_t>(config.num_q_heads / config.num_kv_heads);
  std::vector<double> o(q.size(), 0.0);
  for (size_t h = 0; h < q.size() / dim; ++h) {
    const size_t kv = h / group * dim;
    std::vector<double> p(k.size(), 0.0);
    double total = 0;
    for (size_t j = 0; j < k.size(); ++j) {
      for (size_t d = 0; d < dim; ++d) p[j] += q[h * dim + d] * k[j][kv + d];
      p[j] = std::exp(p[j] / std::sqrt(static_cast<double>(dim)));
      total += p[j];
    }
    for (size_t j = 0; j < v.size(); ++j) {
      for (size_t d = 0; d < dim; ++d) o[h * dim + d] += p[j] / total * v[j][kv + d];
    }
  }
  return o;
}

/// The logits after the last of the tokens.
inline std::vector<double> logits(const Llama& m, const std::vector<int32_t>& tokens) {
  const auto hidden = static_cast<size_t>(m.config.hidden_size);
  const double epsilon = static_cast<double>(m.config.rms_epsilon);
  const auto add = [](std::vector<double>& x, const std::vector<double>& delta) {
    for (size_t i = 0; i < delta.size(); ++i) x[i] += delta[i];
  };
  std::vector<std::vector<std::vector<double>>> keys(m.layers.size()), values(m.layers.size());
  std::vector<double> x;
  for (size_t t = 0; t < tokens.size(); ++t) {
    const auto row = m.embedding.begin() +
                     static_cast<std::ptrdiff_t>(tokens[t]) * static_cast<std::ptrdiff_t>(hidden);
    x.assign(row, row + static_cast<std::ptrdiff_t>(hidden));
    for (size_t l = 0; l < m.layers.size(); ++l) {
      const Layer& layer = m.layers[l];
      const auto project = [&](Projection p, const std::vector<double>& in) {
        std::vector<double> y = matvec(layer.projection[static_cast<int>(p)], in);
        add(y, layer.bias[static_cast<int>(p)]);
        return y;
      };
      const std::vector<double> normed = rms_norm(x, layer.attention_norm, epsilon);
      std::vector<double> q = project(Projection::kQ, normed), k = project(Projection::kK, normed);
      for (std::vector<double>* heads : {&q, &k}) {
        rotate(*heads, m.config.head_dim, m.config.rotations[0].params, m.rope_factors,
               static_cast<int64_t>(t));
      }
      keys[l].push_back(rounded(k, m.kv_dtype));
      values[l].push_back(rounded(project(Projection::kV, normed), m.kv_dtype));
      add(x, project(Projection::kO, attend(q, keys[l], values[l], m.config)));
      const std::vector<double> mlp_in = rms_norm(x, layer.mlp_norm, epsilon);
      std::vector<double> gate = project(Projection::kGate, mlp_in);
      const std::vector<double> up = project(Projection::kUp, mlp_in);
      for (size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
      add(x, project(Projection::kDown, gate));
    }
  }
  std::vector<double> y =
      matvec(m.output.empty() ? m.embedding : m.output, rms_norm(x, m.output_norm, epsilon));
  add(y, m.output_bias);
  return y;
}

}  // namespace heddle::model::ref
