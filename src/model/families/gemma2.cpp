#include <cmath>

#include "heddle/core/error.h"

#include "model/config/rotation_settings.h"
#include "model/families/families.h"

namespace heddle::model {

void read_gemma(const ModelFacts& facts, DecoderConfig& config, int64_t layers_of_largest) {
  const Settings& s = facts.settings;
  const auto root = [](double value) { return static_cast<float>(std::sqrt(value)); };
  config.norm_after = true;
  config.norm_adds_one = !s.is_gguf();  // GGUF stores 1 + w
  config.embedding_scale = root(static_cast<double>(config.hidden_size));
  config.gate_activation = read_activation(s, {"hidden_activation", ""}, "gelu_pytorch_tanh");
  s.mark_void({SettingName{"hidden_act", ""}});  // which earlier files say, too
  const bool is_largest = s.is_gguf() && config.num_layers == layers_of_largest;
  const int64_t scalar =
      is_largest ? config.hidden_size / config.num_q_heads : (s.is_gguf() ? config.head_dim : 256);
  config.attention_scale =
      1.0f / root(s.positive_or({"query_pre_attn_scalar", ""}, static_cast<double>(scalar)));
  config.logits_soft_cap =
      static_cast<float>(s.number_or({"final_logit_softcapping", "final_logit_softcapping"}, 0.0));
  const SettingName bidirectional{"use_bidirectional_attention", ""};  // of embedding models
  if (s.flag_or(bidirectional, false)) {
    throw_error(ErrorCode::kUnsupported, s.where(bidirectional), " is true, supported: false");
  }
  read_attention_bias(facts, config);
  read_tied_head(facts, config, true);
}

namespace {

void read_gemma2(const ModelFacts& facts, DecoderConfig& config) {
  const Settings& s = facts.settings;
  constexpr int64_t kLayersOf27B = 46;
  read_gemma(facts, config, kLayersOf27B);
  config.attention_soft_cap =
      static_cast<float>(s.number_or({"attn_logit_softcapping", "attn_logit_softcapping"}, 0.0));
  config.rotations = {read_rotation(s, config)};
  const int64_t window = s.extent_or({"sliding_window", "attention.sliding_window"}, 4096);
  read_windows(s, config, window, [](const Settings&, int64_t layer) { return layer % 2 == 0; });
}

constexpr std::string_view kDefaults =
    R"({"vocab_size": 256000, "hidden_size": 2304, "intermediate_size": 9216,
    "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim":
    256, "max_position_embeddings": 8192, "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0})";

}  // namespace

/// Every other layer sees a window; scores and logits have soft caps.
const Family kGemma2 = {.name = "gemma2",
                        .architecture = "Gemma2ForCausalLM",
                        .folder_defaults = kDefaults,
                        .read = read_gemma2};

}  // namespace heddle::model
