#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gguf_builder.h"
#include "model/test/llama_model_ref.h"
#include "random.h"

namespace heddle::model {

/// A random Llama whose weights are f32 values. `has_head`: with a head of its own.
inline ref::Llama random_llama(const DecoderConfig& config, bool has_head) {
  const auto random = [](int64_t n, float scale, float mean = 0.0f) {
    std::vector<float> values = testing::random_normal<float>(static_cast<size_t>(n), scale);
    for (float& v : values) v += mean;
    return testing::to_double(values);
  };
  const BlockShape block = config.block();
  ref::Llama m;
  m.config = config;
  m.embedding = random(config.vocab_size * config.hidden_size, 1.0f);
  if (has_head) m.output = random(config.vocab_size * config.hidden_size, 0.5f);
  m.output_norm = random(config.hidden_size, 0.3f, 1.0f);
  for (int64_t i = 0; i < config.num_layers; ++i) {
    ref::Layer layer;
    layer.attention_norm = random(config.hidden_size, 0.3f, 1.0f);
    layer.mlp_norm = random(config.hidden_size, 0.3f, 1.0f);
    for (int p = 0; p < llama::kNumSlices; ++p) {
      const auto [in, out] = block.slice(p).dims;
      layer.projection[p] = random(in * out, 0.2f);
    }
    m.layers.push_back(std::move(layer));
  }
  return m;
}

/// Row r of a matrix of heads in a file: rows 2 j and 2 j + 1 of a head are a pair of the rotation,
/// which Hugging Face keeps half of the rotated part apart. Rows that do not turn stay.
inline int64_t row_in_hugging_face_order(int64_t r, int64_t head_dim, int64_t rotary_dim) {
  const int64_t d = r % head_dim;
  return d < rotary_dim ? r - d + d % 2 * (rotary_dim / 2) + d / 2 : r;
}

/// Adds what a GGUF file says of a Llama, in f32. A rotation of all of a head is not stated, it is
/// the default.
class LlamaFileWriter {
 public:
  LlamaFileWriter(testing::GgufBuilder& file, const ref::Llama& model)
      : file_(file), model_(model) {}

  void write() {
    write_config();
    const DecoderConfig& c = model_.config;
    matrix("token_embd", model_.embedding, c.hidden_size);
    if (!model_.output.empty()) matrix("output", model_.output, c.hidden_size);
    vector("output_norm", model_.output_norm);
    if (!model_.rope_factors.empty()) vector("rope_freqs", model_.rope_factors);
    for (size_t i = 0; i < model_.layers.size(); ++i) {
      write_layer("blk." + std::to_string(i) + ".", model_.layers[i]);
    }
  }

 private:
  void write_config() {
    const DecoderConfig& c = model_.config;
    const auto extent = [&](const char* key, int64_t value) {
      file_.value("llama." + std::string(key), static_cast<uint32_t>(value));
    };
    file_.value("general.architecture", "llama");
    extent("block_count", c.num_layers);
    extent("embedding_length", c.hidden_size);
    extent("feed_forward_length", c.intermediate_size);
    extent("attention.head_count", c.num_q_heads);
    extent("attention.head_count_kv", c.num_kv_heads);
    extent("attention.key_length", c.head_dim);
    extent("attention.value_length", c.head_dim);
    extent("context_length", c.context_length);
    file_.value("llama.attention.layer_norm_rms_epsilon", c.rms_epsilon);
    file_.value("llama.rope.freq_base", static_cast<float>(c.rotations[0].params.theta));
    if (c.rotations[0].params.rotary_dim != c.head_dim)
      extent("rope.dimension_count", c.rotations[0].params.rotary_dim);
    if (c.rotations[0].params.scale != 1.0) {
      file_.value("llama.rope.scaling.type", "linear");
      file_.value("llama.rope.scaling.factor", static_cast<float>(c.rotations[0].params.scale));
    }
  }

  void write_layer(const std::string& prefix, const ref::Layer& layer) {
    vector(prefix + "attn_norm", layer.attention_norm);
    vector(prefix + "ffn_norm", layer.mlp_norm);
    const BlockShape block = model_.config.block();
    for (int p = 0; p < llama::kNumSlices; ++p) {
      const BlockSlice& slice = block.slice(p);
      const std::string name = prefix + std::string(slice.module->gguf);
      const int64_t head_dim = slice.rotates ? model_.config.head_dim : 0;
      matrix(name, layer.projection[p], slice.dims.in, head_dim);
      if (layer.bias[p].empty()) continue;
      add(name + ".bias", {layer.bias[p].size()}, ordered(layer.bias[p], 1, head_dim));
    }
  }

  void vector(const std::string& name, const std::vector<double>& values) {
    const std::vector<float> f32(values.begin(), values.end());
    add(name + ".weight", {values.size()}, f32);
  }
  /// head_dim: of the heads whose rows lie in the file's order; 0: the order is the same.
  void matrix(const std::string& name, const std::vector<double>& values, int64_t in,
              int64_t head_dim = 0) {
    const auto out = static_cast<uint64_t>(std::ssize(values) / in);
    add(name + ".weight", {static_cast<uint64_t>(in), out}, ordered(values, in, head_dim));
  }
  /// The rows in the file's order.
  [[nodiscard]] std::vector<float> ordered(const std::vector<double>& values, int64_t in,
                                           int64_t head_dim) const {
    const int64_t out = std::ssize(values) / in;
    std::vector<float> f32;
    for (int64_t r = 0; r < out; ++r) {
      const int64_t row = head_dim == 0
                              ? r
                              : row_in_hugging_face_order(
                                    r, head_dim, model_.config.rotations[0].params.rotary_dim);
      f32.insert(f32.end(), values.begin() + row * in, values.begin() + (row + 1) * in);
    }
    return f32;
  }
  void add(const std::string& name, const std::vector<uint64_t>& dims,
           const std::vector<float>& values) {
    constexpr uint32_t kF32 = 0;
    file_.tensor(name, dims, kF32,
                 {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  }

  testing::GgufBuilder& file_;
  const ref::Llama& model_;
};

/// What a file says of its tokenizer, whose first 256 tokens are the bytes. Ids of -1 are not
/// stated.
struct ByteTokenizer {
  std::vector<std::string> control_tokens{};  // ids from 256 on
  int32_t bos = -1, eos = -1, eot = -1, eom = -1;
  bool add_bos = false;
  std::string chat_template{};  // empty: none
};

/// Adds a byte-level tokenizer whose token i < 256 is byte i.
inline void write_tokenizer(testing::GgufBuilder& file, const ByteTokenizer& tokenizer) {
  std::vector<std::string> tokens;
  for (int invisible = 0x100, byte = 0; byte < 256; ++byte) {
    const bool is_visible = (byte > ' ' && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
    const int character = is_visible ? byte : invisible++;
    std::string token;
    if (character >= 0x80) token += static_cast<char>(0xC0 | character >> 6);
    token += static_cast<char>(character >= 0x80 ? 0x80 | (character & 0x3F) : character);
    tokens.push_back(token);
  }
  std::vector<int32_t> types(256, 1);
  for (const std::string& token : tokenizer.control_tokens) {
    tokens.push_back(token);
    types.push_back(3);
  }
  file.value("tokenizer.ggml.model", "gpt2")
      .value("tokenizer.ggml.pre", "gpt-2")
      .array("tokenizer.ggml.tokens", tokens)
      .array("tokenizer.ggml.token_type", types)
      .array("tokenizer.ggml.merges", std::vector<std::string>{});
  const auto id = [&](const std::string& name, int32_t token) {
    const std::string key = "tokenizer.ggml." + name + "_token_id";
    if (token >= 0) file.value(key, static_cast<uint32_t>(token));
  };
  id("bos", tokenizer.bos);
  id("eos", tokenizer.eos);
  id("eot", tokenizer.eot);
  id("eom", tokenizer.eom);
  file.value("tokenizer.ggml.add_bos_token", tokenizer.add_bos);
  if (!tokenizer.chat_template.empty()) {
    file.value("tokenizer.chat_template", tokenizer.chat_template);
  }
}

/// A whole file.
inline std::string llama_file(const ref::Llama& model, const ByteTokenizer& tokenizer) {
  testing::GgufBuilder file;
  write_tokenizer(file, tokenizer);
  LlamaFileWriter(file, model).write();
  return file.build();
}

}  // namespace heddle::model
