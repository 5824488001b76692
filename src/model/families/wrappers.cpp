#include <array>

#include "model/families/families.h"

namespace heddle::model {
namespace {

constexpr std::string_view kQwen2VlDefaults =
    R"({"vocab_size": 152064, "hidden_size": 8192, "intermediate_size": 29568,
    "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
    "max_position_embeddings": 32768, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0,
    "sliding_window": 4096, "max_window_layers": 80})";
constexpr std::string_view kQwen3VlDefaults =
    R"({"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
    "head_dim": 128, "max_position_embeddings": 128000, "rope_theta": 500000.0})";

}  // namespace

std::span<const Wrapper> wrappers() {
  static const std::array<Wrapper, 5> kWrappers = {{
      {.architecture = "Gemma3ForConditionalGeneration",
       .model_type = "gemma3",
       .text_type = "gemma3_text",
       .family = &kGemma3,
       .folder_defaults = kGemma3.folder_defaults,
       .tied_by_default = true},
      {.architecture = "Mistral3ForConditionalGeneration",
       .model_type = "mistral3",
       .text_type = "mistral",
       .family = &kMistral,
       .folder_defaults = kMistral.folder_defaults,
       .tied_by_default = true},
      {.architecture = "Qwen2VLForConditionalGeneration",
       .model_type = "qwen2_vl",
       .text_type = "qwen2_vl_text",
       .family = &kQwen2,
       .folder_defaults = kQwen2VlDefaults,
       .tied_by_default = false,
       .either_ties = true},
      {.architecture = "Qwen2_5_VLForConditionalGeneration",
       .model_type = "qwen2_5_vl",
       .text_type = "qwen2_5_vl_text",
       .family = &kQwen2,
       .folder_defaults = kQwen2VlDefaults,
       .tied_by_default = false,
       .either_ties = true},
      {.architecture = "Qwen3VLForConditionalGeneration",
       .model_type = "qwen3_vl",
       .text_type = "qwen3_vl_text",
       .family = &kQwen3,
       .folder_defaults = kQwen3VlDefaults,
       .tied_by_default = false},
  }};
  return kWrappers;
}

}  // namespace heddle::model
