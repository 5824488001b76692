#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "heddle/ops/rope.h"

#include "model/config/block_shape.h"

namespace heddle::model {

/// How positions turn q and k in some layers of a model.
struct Rotation {
  RopeParams params;
  /// Frequency d is divided by factor d, [rotary_dim / 2]; empty: by 1. A file may hold them as a
  /// tensor instead, see DecoderWeights.
  std::vector<float> factors;
  /// The factors of sequences longer than original_context ("longrope" of Phi-3); empty: the same.
  std::vector<float> long_factors;
  bool has_long_factors = false;  // here, or as a tensor of the file
  /// Above 0: in sequences of n > original_context tokens theta grows by
  /// (ntk_factor n / original_context - (ntk_factor - 1))^(rotary_dim / (rotary_dim - 2)), the
  /// "dynamic" scaling of transformers.
  double ntk_factor = 0.0;
  int64_t original_context = 0;

  /// Whether the angles depend on the sequence's length.
  [[nodiscard]] bool depends_on_length() const { return has_long_factors || ntk_factor > 0; }
  [[nodiscard]] bool is_long(int64_t length) const {
    return has_long_factors && length > original_context;
  }
  [[nodiscard]] RopeParams params_for(int64_t length) const;
};

/// What one layer has of its own.
struct LayerTraits {
  static constexpr int kNoRotation = -1;

  int rotation = 0;     // in DecoderConfig::rotations
  int64_t window = -1;  // keys that a query sees, its own included; -1: all before it

  /// The same as AttentionOptions has it.
  [[nodiscard]] int64_t window_left() const { return window < 0 ? -1 : window - 1; }
};

enum class QkNorm : uint8_t {
  kNone,
  kEachHead,  // the weight is [head_dim], the same for all heads: Qwen3, Gemma 3
  kAllHeads,  // the weight is [num_heads * head_dim], one mean over all heads: OLMo 2
};

enum class GateActivation : uint8_t { kSilu, kGeluTanh, kGeluErf };

/// The shape of a decoder and everything in which families differ. The forward pass and the loader
/// read this alone, never the family's name.
struct DecoderConfig {
  std::string name{};    // of the model, as its file has it; may be empty
  std::string family{};  // "llama", "qwen2", ...
  int64_t num_layers = 0, hidden_size = 0, intermediate_size = 0;
  int64_t num_q_heads = 0, num_kv_heads = 0, head_dim = 0;
  int64_t vocab_size = 0, context_length = 0;

  float rms_epsilon = 1e-5f;
  bool norm_before = true;         // of the input of attention and of the MLP
  bool norm_after = false;         // of their outputs, before they are added to the residual
  bool norm_adds_one = false;      // a stored weight w scales by 1 + w
  QkNorm qk_norm = QkNorm::kNone;  // of q and k before they are rotated

  bool qkv_bias = false, o_bias = false, mlp_bias = false;
  bool fused_qkv = false, fused_gate_up = false;  // one stored tensor with the rows of all
  bool tied_head = false;                         // the embedding is the head
  bool has_head = true;         // false: tokens have no logits, the model embeds or classifies
  bool interleaved_qk = false;  // stored rows 2 j and 2 j + 1 of a head are a pair of the rotation

  std::vector<Rotation> rotations = std::vector<Rotation>(1);
  std::vector<LayerTraits> layers{};  // [num_layers], or empty: all have the defaults

  GateActivation gate_activation = GateActivation::kSilu;
  float embedding_scale = 1.0f, residual_scale = 1.0f, logits_scale = 1.0f;
  std::optional<float> attention_scale{};                   // of q k; nothing: 1 / sqrt(head_dim)
  float attention_soft_cap = 0.0f, logits_soft_cap = 0.0f;  // 0: none

  [[nodiscard]] BlockShape block() const;
  [[nodiscard]] ModelDims dims() const { return {num_layers, block(), hidden_size, vocab_size}; }
  [[nodiscard]] LayerTraits layer(int64_t i) const {
    return layers.empty() ? LayerTraits{} : layers[static_cast<size_t>(i)];
  }
  [[nodiscard]] int rotary_dim() const { return rotations.front().params.rotary_dim; }
  /// The row of a file that has both rows of a rotated pair next to each other (interleaved_qk), of
  /// row `row` of q or k in Hugging Face's order.
  [[nodiscard]] int64_t interleaved_row(int64_t row) const;
  /// Above 0: a sequence that grows longer than this is recomputed, since all its keys are rotated
  /// by other angles then.
  [[nodiscard]] int64_t recompute_above() const;
};

}  // namespace heddle::model
