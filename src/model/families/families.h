#pragma once

#include "model/families/family.h"

namespace heddle::model {

extern const Family kLlama, kMistral, kQwen2, kQwen3, kGemma2, kGemma3, kPhi3, kGranite, kOlmo2,
    kSmolLm3;

// What several of them share.

/// What Gemma 2 and 3 share: norms before and after with 1 + w, the embedding times the root of the
/// width, GELU, a soft cap of the logits, and q k scaled by query_pre_attn_scalar^-1/2. GGUF does
/// not say that scalar: it is head_dim, and hidden_size / num_heads in the model with
/// `layers_of_largest`. transformers caps the scores of Gemma 2 alone.
void read_gemma(const ModelFacts& facts, DecoderConfig& config, int64_t layers_of_largest);
/// With use_sliding_window the layers from max_window_layers on see sliding_window keys.
void read_qwen_windows(const Settings& settings, DecoderConfig& config);

}  // namespace heddle::model
