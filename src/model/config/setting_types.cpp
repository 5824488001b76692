#include "model/config/setting_types.h"

#include <algorithm>
#include <cmath>

#include "heddle/core/error.h"

#include "files/json_text.h"
#include "files/json_value.h"
#include "files/printable.h"
#include "model/config/words.h"

namespace heddle::model {
namespace {

constexpr unsigned kIds = kInteger | kList;
constexpr unsigned kToken = kText | kObject;

// Of config.json, by type: settings that do not change what text models compute, or that repeat
// others (_sliding_window_pattern repeats layer_types).
constexpr SettingTypes kNeutralSettings[] = {
    {kFlag,
     "_attn_implementation_autoset is_encoder_decoder multimodal_projector_bias "
     "output_attentions output_hidden_states return_dict unsloth_fixed use_cache torchscript"},
    {kText,
     "_name_or_path cache_implementation dtype model_type problem_type projector_hidden_act "
     "tokenizer_class torch_dtype transformers_version unsloth_version finetuning_task prefix"},
    {kInteger,
     "_sliding_window_pattern boi_token_index chunk_size_feed_forward eoi_token_index "
     "image_token_id image_token_index mm_tokens_per_image pretraining_tp spatial_merge_size "
     "video_token_id video_token_index vision_end_token_id vision_start_token_id vision_token_id "
     "audio_token_id"},
    {kList, "architectures"},
    {kNumber, "attention_dropout embd_pdrop initializer_range resid_pdrop"},
    {kObject, "auto_map id2label label2id task_specific_params text_config vision_config"},
    {kIds, "bos_token_id eos_token_id pad_token_id sep_token_id"},
    {kInteger | kList, "vision_feature_layer"},
};

// Those that some family reads.
constexpr SettingTypes kReadSettings[] = {
    {kFlag,
     "attention_bias mlp_bias tie_word_embeddings use_bidirectional_attention use_sliding_window"},
    {kNumber,
     "attention_multiplier attn_logit_softcapping embedding_multiplier final_logit_softcapping "
     "logits_scaling partial_rotary_factor query_pre_attn_scalar residual_multiplier "
     "rms_norm_eps rope_local_base_freq rope_theta"},
    {kInteger,
     "head_dim hidden_size intermediate_size max_position_embeddings max_window_layers "
     "no_rope_layer_interval num_attention_heads num_experts num_hidden_layers "
     "num_key_value_heads num_local_experts original_max_position_embeddings sliding_window "
     "sliding_window_pattern vocab_size"},
    {kText, "hidden_act hidden_activation"},
    {kList, "layer_types no_rope_layers"},
    {kObject, "quantization_config rope_parameters rope_scaling"},
};

constexpr SettingTypes kRopeSettings[] = {
    {kNumber,
     "attention_factor beta_fast beta_slow factor high_freq_factor low_freq_factor mscale "
     "mscale_all_dim partial_rotary_factor rope_theta"},
    {kObject, "full_attention sliding_attention"},
    {kList, "long_factor mrope_section short_factor"},
    {kFlag, "mrope_interleaved truncate"},
    {kInteger, "original_max_position_embeddings"},
    {kText, "rope_type type"},
};

constexpr SettingTypes kGenerationSettings[] = {
    {kIds, "bos_token_id eos_token_id pad_token_id"},
    {kText, "cache_implementation transformers_version"},
    {kNumber,
     "diversity_penalty length_penalty min_p presence_penalty frequency_penalty "
     "repetition_penalty temperature top_p typical_p"},
    {kFlag, "do_sample trust_remote_code use_cache _from_model_config"},
    {kFlag | kText, "early_stopping"},
    {kInteger,
     "max_length max_new_tokens min_length min_new_tokens no_repeat_ngram_size num_beams "
     "num_return_sequences top_k"},
    {kText | kList, "stop_strings"},
    {kList, "suppress_tokens"},
};

constexpr SettingTypes kTokenizerSettings[] = {
    {kFlag,
     "add_bos_token add_eos_token add_prefix_space clean_up_tokenization_spaces legacy "
     "split_special_tokens use_default_system_prompt"},
    {kObject, "added_tokens_decoder sp_model_kwargs"},
    {kList, "additional_special_tokens"},
    {kToken, "bos_token cls_token eos_token mask_token pad_token sep_token unk_token"},
    {kText | kList | kObject, "chat_template"},
    {kList | kObject, "extra_special_tokens"},
    {kNumber, "model_max_length"},
    {kText, "padding_side tokenizer_class truncation_side"},
};

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

bool knows(std::span<const SettingTypes> types, std::string_view name) {
  return std::ranges::any_of(
      types, [&](const SettingTypes& type) { return is_word_of(type.names, name); });
}

void add_unknown(const files::Json& rope, const std::string& where,
                 std::vector<std::string>& unknown) {
  if (!rope.is_object()) return;
  for (const auto& member : rope.get_object()) {
    const std::string key(member.key());
    const files::Json& value = member.value();
    const bool is_known = knows(kRopeSettings, key);
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
                         std::span<const SettingTypes> types) {
  for (const auto& [kinds, names] : types) {
    for_words(names, [&, expected = kinds](std::string_view name) {
      const files::Json* const found = files::find_member(object, name);
      if (found == nullptr || is_of(*found, expected)) return;
      throw_error(ErrorCode::kInvalidArgument, where, name, " is ",
                  files::printable(files::json_text(*found)), ", expected ", names_of(expected));
    });
  }
}

std::span<const SettingTypes> generation_setting_types() { return kGenerationSettings; }
std::span<const SettingTypes> tokenizer_setting_types() { return kTokenizerSettings; }

bool is_neutral_setting(std::string_view name) { return knows(kNeutralSettings, name); }

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
  const auto check = [](const files::Json& object, const std::string& where) {
    check_setting_types(object, where, kNeutralSettings);
    check_setting_types(object, where, kReadSettings);
    check_rotations(object, where);
  };
  check(config, path + ": ");
  const files::Json* const text = files::find_member(config, "text_config");
  if (text == nullptr || text->is_null()) return;
  check(*text, path + ": text_config.");
}

}  // namespace heddle::model
