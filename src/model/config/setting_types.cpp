#include "model/config/setting_types.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "heddle/core/error.h"

#include "files/json_text.h"
#include "files/json_value.h"
#include "files/printable.h"

namespace heddle::model {
namespace {

constexpr unsigned kIds = kInteger | kList;
constexpr unsigned kToken = kText | kObject;

// Those that say nothing of what is computed come first.
constexpr size_t kNumNeutral = 52;
constexpr std::array kModelSettings = std::to_array<SettingType>({
    {"_attn_implementation_autoset", kFlag},
    {"_name_or_path", kText},
    {"_sliding_window_pattern", kInteger},  // layer_types say it
    {"architectures", kList},
    {"attention_dropout", kNumber},
    {"auto_map", kObject},
    {"boi_token_index", kInteger},
    {"bos_token_id", kIds},
    {"cache_implementation", kText},
    {"chunk_size_feed_forward", kInteger},
    {"dtype", kText},
    {"embd_pdrop", kNumber},
    {"eoi_token_index", kInteger},
    {"eos_token_id", kIds},
    {"id2label", kObject},
    {"image_token_id", kInteger},
    {"image_token_index", kInteger},
    {"initializer_range", kNumber},
    {"is_encoder_decoder", kFlag},
    {"label2id", kObject},
    {"mm_tokens_per_image", kInteger},
    {"model_type", kText},
    {"multimodal_projector_bias", kFlag},
    {"output_attentions", kFlag},
    {"output_hidden_states", kFlag},
    {"pad_token_id", kIds},
    {"pretraining_tp", kInteger},
    {"problem_type", kText},
    {"projector_hidden_act", kText},
    {"resid_pdrop", kNumber},
    {"return_dict", kFlag},
    {"sep_token_id", kIds},
    {"spatial_merge_size", kInteger},
    {"task_specific_params", kObject},
    {"text_config", kObject},
    {"tokenizer_class", kText},
    {"torch_dtype", kText},
    {"transformers_version", kText},
    {"unsloth_fixed", kFlag},
    {"unsloth_version", kText},
    {"use_cache", kFlag},
    {"video_token_id", kInteger},
    {"video_token_index", kInteger},
    {"vision_config", kObject},
    {"vision_end_token_id", kInteger},
    {"vision_feature_layer", kInteger | kList},
    {"vision_start_token_id", kInteger},
    {"vision_token_id", kInteger},
    {"audio_token_id", kInteger},
    {"finetuning_task", kText},
    {"prefix", kText},
    {"torchscript", kFlag},
    // What is read, by some families or all.
    {"attention_bias", kFlag},
    {"attention_multiplier", kNumber},
    {"attn_logit_softcapping", kNumber},
    {"embedding_multiplier", kNumber},
    {"final_logit_softcapping", kNumber},
    {"head_dim", kInteger},
    {"hidden_act", kText},
    {"hidden_activation", kText},
    {"hidden_size", kInteger},
    {"intermediate_size", kInteger},
    {"layer_types", kList},
    {"logits_scaling", kNumber},
    {"max_position_embeddings", kInteger},
    {"max_window_layers", kInteger},
    {"mlp_bias", kFlag},
    {"no_rope_layer_interval", kInteger},
    {"no_rope_layers", kList},
    {"num_attention_heads", kInteger},
    {"num_experts", kInteger},
    {"num_hidden_layers", kInteger},
    {"num_key_value_heads", kInteger},
    {"num_local_experts", kInteger},
    {"original_max_position_embeddings", kInteger},
    {"partial_rotary_factor", kNumber},
    {"quantization_config", kObject},
    {"query_pre_attn_scalar", kNumber},
    {"residual_multiplier", kNumber},
    {"rms_norm_eps", kNumber},
    {"rope_local_base_freq", kNumber},
    {"rope_parameters", kObject},
    {"rope_scaling", kObject},
    {"rope_theta", kNumber},
    {"sliding_window", kInteger},
    {"sliding_window_pattern", kInteger},
    {"tie_word_embeddings", kFlag},
    {"use_bidirectional_attention", kFlag},
    {"use_sliding_window", kFlag},
    {"vocab_size", kInteger},
});
static_assert(kModelSettings[kNumNeutral].name == "attention_bias");

constexpr std::array kRopeSettings = std::to_array<SettingType>({
    {"attention_factor", kNumber},
    {"beta_fast", kNumber},
    {"beta_slow", kNumber},
    {"factor", kNumber},
    {"full_attention", kObject},
    {"high_freq_factor", kNumber},
    {"long_factor", kList},
    {"low_freq_factor", kNumber},
    {"mrope_interleaved", kFlag},
    {"mrope_section", kList},
    {"mscale", kNumber},
    {"mscale_all_dim", kNumber},
    {"original_max_position_embeddings", kInteger},
    {"partial_rotary_factor", kNumber},
    {"rope_theta", kNumber},
    {"rope_type", kText},
    {"short_factor", kList},
    {"sliding_attention", kObject},
    {"truncate", kFlag},
    {"type", kText},
});

constexpr std::array kGenerationSettings = std::to_array<SettingType>({
    {"bos_token_id", kIds},
    {"cache_implementation", kText},
    {"diversity_penalty", kNumber},
    {"do_sample", kFlag},
    {"early_stopping", kFlag | kText},
    {"eos_token_id", kIds},
    {"length_penalty", kNumber},
    {"max_length", kInteger},
    {"max_new_tokens", kInteger},
    {"min_length", kInteger},
    {"min_new_tokens", kInteger},
    {"min_p", kNumber},
    {"no_repeat_ngram_size", kInteger},
    {"num_beams", kInteger},
    {"num_return_sequences", kInteger},
    {"pad_token_id", kIds},
    {"presence_penalty", kNumber},
    {"frequency_penalty", kNumber},
    {"repetition_penalty", kNumber},
    {"stop_strings", kText | kList},
    {"suppress_tokens", kList},
    {"temperature", kNumber},
    {"top_k", kInteger},
    {"top_p", kNumber},
    {"transformers_version", kText},
    {"trust_remote_code", kFlag},
    {"typical_p", kNumber},
    {"use_cache", kFlag},
    {"_from_model_config", kFlag},
});

constexpr std::array kTokenizerSettings = std::to_array<SettingType>({
    {"add_bos_token", kFlag},
    {"add_eos_token", kFlag},
    {"add_prefix_space", kFlag},
    {"added_tokens_decoder", kObject},
    {"additional_special_tokens", kList},
    {"bos_token", kToken},
    {"chat_template", kText | kList | kObject},
    {"clean_up_tokenization_spaces", kFlag},
    {"cls_token", kToken},
    {"eos_token", kToken},
    {"extra_special_tokens", kList | kObject},
    {"legacy", kFlag},
    {"mask_token", kToken},
    {"model_max_length", kNumber},
    {"pad_token", kToken},
    {"padding_side", kText},
    {"sep_token", kToken},
    {"sp_model_kwargs", kObject},
    {"split_special_tokens", kFlag},
    {"tokenizer_class", kText},
    {"truncation_side", kText},
    {"unk_token", kToken},
    {"use_default_system_prompt", kFlag},
});

bool is_of(const files::Json& value, unsigned kinds) {
  if (value.is_null()) return true;
  if (value.is_bool()) return (kinds & kFlag) != 0;
  if (value.is_string()) return (kinds & kText) != 0;
  if (value.is_array()) return (kinds & kList) != 0;
  if (value.is_object()) return (kinds & kObject) != 0;
  if ((kinds & kNumber) != 0) return true;
  if ((kinds & kInteger) == 0) return false;
  if (files::is_integer(value)) return true;
  const double number = files::number_of(value);
  return std::trunc(number) == number;
}

/// "a string or a list".
std::string names_of(unsigned kinds) {
  static constexpr std::pair<unsigned, const char*> kNames[] = {
      {kFlag, "true or false"}, {kInteger, "an integer"}, {kNumber, "a number"},
      {kText, "a string"},      {kList, "a list"},        {kObject, "an object"}};
  std::string names;
  for (const auto& [kind, name] : kNames) {
    if ((kinds & kind) != 0) names += (names.empty() ? "" : " or ") + std::string(name);
  }
  return names;
}

void add_unknown(const files::Json& rope, const std::string& where,
                 std::vector<std::string>& unknown) {
  if (!rope.is_object()) return;
  for (const auto& member : rope.get_object()) {
    const std::string key(member.key());
    const files::Json& value = member.value();
    const bool is_known =
        std::ranges::find(kRopeSettings, key, &SettingType::name) != std::end(kRopeSettings);
    if (is_known && value.is_object()) add_unknown(value, where + key + ".", unknown);
    if (!is_known && !value.is_null()) unknown.push_back(where + key);
  }
}

void check_rotations(const files::Json& object, const std::string& where) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const files::Json* const found = files::find_member(object, key);
    if (found == nullptr || found->is_null()) continue;
    const std::string place = where + key + ".";
    check_setting_types(*found, place, kRopeSettings);
    for (const char* type : {"full_attention", "sliding_attention"}) {
      const files::Json* const of_layers = files::find_member(*found, type);
      if (of_layers == nullptr || of_layers->is_null()) continue;
      check_setting_types(*of_layers, place + type + ".", kRopeSettings);
    }
  }
}

}  // namespace

void check_setting_types(const files::Json& object, const std::string& where,
                         std::span<const SettingType> types) {
  for (const SettingType& type : types) {
    const files::Json* const found = files::find_member(object, type.name);
    if (found == nullptr || is_of(*found, type.kinds)) continue;
    throw_error(ErrorCode::kInvalidArgument, where, type.name, " is ",
                files::printable(files::json_text(*found)), ", expected ", names_of(type.kinds));
  }
}

std::span<const SettingType> model_setting_types() { return kModelSettings; }
std::span<const SettingType> rope_setting_types() { return kRopeSettings; }
std::span<const SettingType> generation_setting_types() { return kGenerationSettings; }
std::span<const SettingType> tokenizer_setting_types() { return kTokenizerSettings; }

bool is_neutral_setting(std::string_view name) {
  const auto neutral = std::span(kModelSettings).first(kNumNeutral);
  return std::ranges::find(neutral, name, &SettingType::name) != neutral.end();
}

std::vector<std::string> unknown_rope_settings(const files::Json& config) {
  std::vector<std::string> unknown;
  const files::Json* const text = files::find_member(config, "text_config");
  const bool is_nested = text != nullptr && text->is_object();
  const files::Json& half = is_nested ? *text : config;
  for (const std::string key : {"rope_scaling", "rope_parameters"}) {
    const files::Json* const found = files::find_member(half, key);
    if (found != nullptr) {
      add_unknown(*found, (is_nested ? "text_config." : "") + key + ".", unknown);
    }
  }
  return unknown;
}

void check_config_types(const files::Json& config, const std::string& path) {
  const std::string where = path + ": ";
  check_setting_types(config, where, kModelSettings);
  check_rotations(config, where);
  const files::Json* const text = files::find_member(config, "text_config");
  if (text == nullptr || text->is_null()) return;
  check_setting_types(*text, where + "text_config.", kModelSettings);
  check_rotations(*text, where + "text_config.");
}

}  // namespace heddle::model
