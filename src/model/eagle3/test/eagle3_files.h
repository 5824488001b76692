#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "model/test/llama_model_ref.h"
#include "random.h"
#include "safetensors_builder.h"
#include "temp_folder.h"

namespace heddle::model {

/// A random EAGLE-3 drafter, in double, and the files of its folder.
struct Eagle3Ref {
  struct Shape {
    int64_t hidden_size = 12, intermediate_size = 20;
    int64_t num_q_heads = 4, num_kv_heads = 2, head_dim = 6;
    int64_t draft_vocab_size = 50;
    bool norm_before_residual = false, has_embedding = true;
    std::vector<int64_t> layers = {0, 1, 2};
  };

  Eagle3Ref(const ref::Llama& target, Shape given)
      : shape(std::move(given)), target_config(target.config), embedding(target.embedding) {
    const int64_t h = shape.hidden_size, q = shape.num_q_heads * shape.head_dim;
    const int64_t kv = shape.num_kv_heads * shape.head_dim, inner = shape.intermediate_size;
    add("fc.weight", {h, 3 * target.config.hidden_size}, 0.2f);
    add("midlayer.self_attn.q_proj.weight", {q, 2 * h}, 0.3f);
    add("midlayer.self_attn.k_proj.weight", {kv, 2 * h}, 0.3f);
    add("midlayer.self_attn.v_proj.weight", {kv, 2 * h}, 0.3f);
    add("midlayer.self_attn.o_proj.weight", {h, q}, 0.3f);
    add("midlayer.mlp.gate_proj.weight", {inner, h}, 0.3f);
    add("midlayer.mlp.up_proj.weight", {inner, h}, 0.3f);
    add("midlayer.mlp.down_proj.weight", {h, inner}, 0.3f);
    add("lm_head.weight", {shape.draft_vocab_size, h}, 0.5f);
    for (const char* name : {"midlayer.input_layernorm.weight", "midlayer.hidden_norm.weight",
                             "midlayer.post_attention_layernorm.weight", "norm.weight"}) {
      add(name, {h}, 0.3f, 1.0f);
    }
    if (shape.has_embedding) {
      add("embed_tokens.weight", {target.config.vocab_size, h}, 1.0f);
      embedding = weights.at("embed_tokens.weight");
    }
    for (int64_t i = 0; i < shape.draft_vocab_size; ++i) {  // every fourth token, as far as it goes
      offsets.push_back(i * 4 % target.config.vocab_size - i);
    }
  }

  [[nodiscard]] nlohmann::json config() const {
    return {{"architectures", {"LlamaForCausalLMEagle3"}},
            {"model_type", "llama"},
            {"hidden_size", shape.hidden_size},
            {"target_hidden_size", target_config.hidden_size},
            {"intermediate_size", shape.intermediate_size},
            {"num_attention_heads", shape.num_q_heads},
            {"num_key_value_heads", shape.num_kv_heads},
            {"head_dim", shape.head_dim},
            {"num_hidden_layers", 1},
            {"vocab_size", target_config.vocab_size},
            {"draft_vocab_size", shape.draft_vocab_size},
            {"rms_norm_eps", 1e-5},
            {"rope_theta", 1000.0},
            {"max_position_embeddings", 256},
            {"norm_before_residual", shape.norm_before_residual},
            {"eagle_aux_hidden_state_layer_ids", shape.layers}};
  }

  /// The tensors of the file in order, which a test may change.
  struct Tensor {
    std::string name, dtype;
    std::vector<int64_t> shape;
    std::string data;
  };
  [[nodiscard]] std::vector<Tensor> tensors() const {
    std::vector<Tensor> all;
    for (const auto& [name, values] : weights) {
      const std::vector<float> f32(values.begin(), values.end());
      all.push_back({name,
                     "F32",
                     shapes.at(name),
                     {reinterpret_cast<const char*>(f32.data()), f32.size() * sizeof(float)}});
    }
    all.push_back({"d2t",
                   "I64",
                   {shape.draft_vocab_size},
                   {reinterpret_cast<const char*>(offsets.data()), offsets.size() * 8}});
    std::string mask(static_cast<size_t>(target_config.vocab_size), '\0');
    for (size_t i = 0; i < offsets.size(); ++i) mask[i + static_cast<size_t>(offsets[i])] = 1;
    all.push_back({"t2d", "BOOL", {target_config.vocab_size}, mask});
    return all;
  }
  /// Writes the folder's files.
  void write(const testing::TempFolder& folder) const {
    folder.write("config.json", config().dump());
    folder.write("model.safetensors", file_of(tensors()));
  }
  [[nodiscard]] static std::string file_of(const std::vector<Tensor>& tensors) {
    testing::SafetensorsBuilder file;
    for (const Tensor& t : tensors) file.tensor(t.name, t.dtype, t.shape, t.data);
    return file.build();
  }

  /// The drafts after `tokens`, whose hidden states but for the last one's are those of the target:
  /// states[p] are the three that entered its layers at position p, side by side. The layer's
  /// context begins at `begin`. margin: the likeliest logit less the second one, the least of all.
  [[nodiscard]] std::vector<int32_t> drafts(const std::vector<ref::Values>& states,
                                            std::vector<int32_t> tokens, size_t begin,
                                            size_t num_drafts, double& margin) const {
    std::vector<ref::Values> keys, values;
    ref::Values hidden;
    const size_t length = tokens.size();
    std::vector<int32_t> drafts;
    for (size_t p = begin; drafts.size() < num_drafts; ++p) {
      if (p + 1 < length) hidden = ref::matvec(weights.at("fc.weight"), states[p]);
      hidden = layer(hidden, tokens[p + 1], p, keys, values);
      if (p + 2 < length) continue;
      drafts.push_back(draw(hidden, margin));
      tokens.push_back(drafts.back());
    }
    return drafts;
  }

  Shape shape;
  DecoderConfig target_config;
  std::map<std::string, ref::Values> weights;
  std::map<std::string, std::vector<int64_t>> shapes;
  std::vector<int64_t> offsets;
  ref::Values embedding;

 private:
  void add(const std::string& name, const std::vector<int64_t>& extents, float scale,
           float mean = 0.0f) {
    int64_t size = 1;
    for (const int64_t extent : extents) size *= extent;
    std::vector<float> values = testing::random_normal<float>(static_cast<size_t>(size), scale);
    for (float& value : values) value += mean;
    weights[name] = testing::to_double(values);
    shapes[name] = extents;
  }

  [[nodiscard]] ref::Values layer(const ref::Values& hidden, int32_t token, size_t position,
                                  std::vector<ref::Values>& keys,
                                  std::vector<ref::Values>& values) const {
    DecoderConfig c;
    c.num_q_heads = shape.num_q_heads;
    c.num_kv_heads = shape.num_kv_heads;
    c.head_dim = shape.head_dim;
    const auto w = [&](const std::string& name) { return weights.at("midlayer." + name); };
    const auto width = static_cast<size_t>(shape.hidden_size);
    const auto first = embedding.begin() + token * shape.hidden_size;
    ref::Values in =
        ref::normed(c, ref::Values(first, first + shape.hidden_size), w("input_layernorm.weight"));
    const ref::Values right = ref::normed(c, hidden, w("hidden_norm.weight"));
    in.insert(in.end(), right.begin(), right.end());
    ref::Values x = shape.norm_before_residual ? right : hidden;
    ref::Values q = ref::matvec(w("self_attn.q_proj.weight"), in);
    ref::Values k = ref::matvec(w("self_attn.k_proj.weight"), in);
    const RopeParams rope{.theta = 1000.0, .rotary_dim = static_cast<int>(shape.head_dim)};
    for (ref::Values* heads : {&q, &k}) {
      ref::rotate(*heads, shape.head_dim, rope, {}, static_cast<int64_t>(position));
    }
    keys.push_back(k);
    values.push_back(ref::matvec(w("self_attn.v_proj.weight"), in));
    const auto add_to_x = [&](const ref::Values& delta) {
      for (size_t i = 0; i < width; ++i) x[i] += delta[i];
    };
    add_to_x(ref::matvec(w("self_attn.o_proj.weight"), ref::attend(c, 0, q, keys, values)));
    const ref::Values y = ref::normed(c, x, w("post_attention_layernorm.weight"));
    ref::Values gate = ref::matvec(w("mlp.gate_proj.weight"), y);
    const ref::Values up = ref::matvec(w("mlp.up_proj.weight"), y);
    for (size_t i = 0; i < gate.size(); ++i) {
      gate[i] = ref::gate_of(GateActivation::kSilu, gate[i]) * up[i];
    }
    add_to_x(ref::matvec(w("mlp.down_proj.weight"), gate));
    return x;
  }

  [[nodiscard]] int32_t draw(const ref::Values& hidden, double& margin) const {
    const ref::Values logits = ref::matvec(weights.at("lm_head.weight"),
                                           ref::normed({}, hidden, weights.at("norm.weight")));
    size_t best = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      if (logits[i] > logits[best]) best = i;
    }
    for (size_t i = 0; i < logits.size(); ++i) {
      if (i != best) margin = std::min(margin, logits[best] - logits[i]);
    }
    return static_cast<int32_t>(static_cast<int64_t>(best) + offsets[best]);
  }
};

}  // namespace heddle::model
